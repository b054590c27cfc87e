"""Identities survive renames; a name that is dropped and added again gets a new identity. S103, S104, H12."""

from __future__ import annotations

import pytest

from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.change_steps import DropType, RenameType, SchemaChangeRefused, Tighten
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.plan_change import plan_change
from omnigraph.schema.problems import SchemaError
from tests.schema.helpers import compile_text, counter


def node(catalog: Catalog, name: str) -> TypeDef:
    type_def = catalog.node(name)
    assert type_def is not None
    return type_def


def chain(*sources: str) -> list[Catalog]:
    """Apply each schema on the one before."""
    catalogs: list[Catalog] = []
    for at, source in enumerate(sources):
        catalogs.append(compile_text(source, previous=catalogs[-1] if catalogs else None, start=100 * at + 1))
    return catalogs


def test_names_keep_identities() -> None:
    first, second = chain("node A { p: String }", "node B {} node A { q: I32? p: String }")
    assert node(second, "A").id == node(first, "A").id
    assert node(second, "A").by_name["p"].id == node(first, "A").by_name["p"].id
    assert node(second, "A").by_name["q"].id == "q_00000102"


def test_drop_and_re_add_is_a_new_identity() -> None:
    first, _, third = chain("node A { p: String? q: I32 }", "node A { q: I32 }", "node A { p: String? q: I32 }")
    assert node(third, "A").id == node(first, "A").id
    assert node(third, "A").by_name["p"].id != node(first, "A").by_name["p"].id
    before_drop, _, after_re_add = chain("node A {} node B {}", "node B {}", "node A {} node B {}")
    assert node(after_re_add, "A").id != node(before_drop, "A").id


def test_a_hint_left_in_the_text_acts_once() -> None:
    swap = 'node B @rename_from("A") { p: String } node A @rename_from("B") { q: I32 }'
    first, second, third, fourth = chain("node A { p: String } node B { q: I32 }", swap, swap, swap + " node C {}")
    assert node(second, "B").id == node(first, "A").id
    assert third.types == second.types
    assert node(fourth, "B").id == node(first, "A").id
    assert [step.step for step in plan_change(third, fourth)] == ["add_type"]


def test_a_hint_taken_away_and_written_again_acts_again() -> None:
    first, _, _, last = chain(
        "node A {} node B {}",
        'node B @rename_from("A") {} node A @rename_from("B") {}',
        "node A {} node B {}",
        'node B @rename_from("A") {} node A @rename_from("B") {}',
    )
    assert {type_def.name: type_def.id for type_def in first.types} == {
        type_def.name: type_def.id for type_def in last.types
    }


def test_a_spent_hint_does_not_take_over_a_younger_type_of_the_old_name() -> None:
    first, second, third, fourth = chain(
        "node A { p: String }",
        'node B @rename_from("A") { p: String }',
        'node B @rename_from("A") { p: String } node A { p: String }',
        'node B @rename_from("A") { p: String }',
    )
    assert node(third, "B").id == node(first, "A").id
    assert node(third, "A").id != node(first, "A").id
    assert node(fourth, "B").id == node(second, "B").id
    assert plan_change(third, fourth).steps == (DropType(node(third, "A").id, "node:A"),)


def test_a_rename_over_an_existing_name_drops_what_had_it() -> None:
    first, second = chain("node A { p: String } node B { q: I32 }", 'node B @rename_from("A") { p: String }')
    steps = plan_change(first, second).steps
    assert steps == (
        DropType(node(first, "B").id, "node:B"),
        RenameType(node(first, "A").id, "node:B", "node:A"),
    )


def test_properties_swap_and_keep_their_values() -> None:
    first, second = chain(
        "node A { p: String q: String }", 'node A { p: String @rename_from("q") q: String @rename_from("p") }'
    )
    assert node(second, "A").by_name["p"].id == node(first, "A").by_name["q"].id
    assert node(second, "A").by_name["q"].id == node(first, "A").by_name["p"].id


def test_a_rename_never_changes_the_order_of_key_members() -> None:
    first, second = chain(
        "node A { p: String q: String @key(p, q) }",
        'node A { z: String @rename_from("p") a: String @rename_from("q") @key(a, z) }',
    )
    assert node(second, "A").key == node(first, "A").key
    assert plan_change(first, second).supported


def test_a_renamed_end_keeps_its_edges() -> None:
    first, second = chain("node A {} edge E: A -> A", 'node Z @rename_from("A") {} edge E: Z -> Z')
    assert second.types[1].source == first.types[0].id
    assert [step.step for step in plan_change(first, second)] == ["rename_type"]


def test_an_edge_cannot_move_to_a_new_type_under_the_old_name() -> None:
    first, second = chain("node A {} edge E: A -> A", 'node B @rename_from("A") {} node A {} edge E: A -> A')
    plan = plan_change(first, second)
    assert not plan.supported
    with pytest.raises(SchemaChangeRefused, match="its source cannot become node:A") as caught:
        plan.check()
    assert caught.value.code == "OG-MF-106"


def test_a_hint_on_an_interface_concerns_only_types_that_have_the_old_name() -> None:
    first, second = chain(
        "interface I { p: String? } node A implements I {} node B {}",
        'interface I { q: String? @rename_from("p") } node A implements I {} node B implements I {}',
    )
    assert node(second, "A").by_name["q"].id == node(first, "A").by_name["p"].id
    assert node(second, "B").by_name["q"].id == "q_00000101"


def test_a_hint_on_a_property_that_the_type_declares_itself_must_name_something() -> None:
    (first,) = chain("node A {}")
    declaration = 'p: String? @rename_from("z")'
    with pytest.raises(SchemaError, match="OG-S-076"):
        compile_text(
            f"interface I {{ {declaration} }} node A implements I {{ {declaration} }}", previous=first, start=100
        )


def test_tokens_are_minted_in_the_order_of_the_text_and_never_for_a_wrong_schema() -> None:
    catalog = compile_text("edge E: A -> A { w: F64 } node A { p: String }")
    assert [type_def.id for type_def in catalog.types] == ["edge.e-00000001", "node.a-00000002"]
    assert [prop.id for type_def in catalog.types for prop in type_def.properties] == ["w_00000003", "p_00000004"]
    mint = counter()
    with pytest.raises(SchemaError):
        compile_schema("node A { p: Foo }", mint=mint)
    assert mint() == "00000001"


def test_a_vacuous_constraint_needs_no_validation() -> None:
    first, second = chain("node A { p: String }", "node A { p: String q: I32? @unique }")
    (tighten,) = [step for step in plan_change(first, second) if isinstance(step, Tighten)]
    assert tighten.vacuous
    assert not tighten.validates_rows
