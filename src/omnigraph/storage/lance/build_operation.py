"""From a staged change and its base to the single Lance operation that applies it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.errors import InvalidInput, Unsupported
from omnigraph.storage.lance.arrow_fit import fit_table
from omnigraph.storage.lance.errors import lance_call
from omnigraph.storage.lance.field_ids import extend_schema, fresh_schema, renumber
from omnigraph.storage.lance.pinned_table import PinnedTable
from omnigraph.storage.lance.row_address import ROW_ADDRESS, split_address
from omnigraph.storage.lance.staged_table import StagedTable, dump_fragment, load_fragment

if TYPE_CHECKING:
    from lance import LanceOperation
    from lance.fragment import FragmentMetadata

#: Runs a function over arguments, perhaps at once.
Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Deletions:
    """How fragments of one base change when ids are removed from it."""

    touched: tuple[str, ...] = ()
    emptied: tuple[int, ...] = ()

    def of_fragments(self, kept: Collection[int]) -> Deletions:
        """The part that concerns these fragments."""
        touched = tuple(one for one in self.touched if json.loads(one)["id"] in kept)
        return Deletions(touched, tuple(one for one in self.emptied if one in kept))

    def __add__(self, other: Deletions) -> Deletions:
        return Deletions(self.touched + other.touched, self.emptied + other.emptied)

    def rows(self, base: PinnedTable) -> int:
        """How many rows of `base` they remove."""
        before: dict[int, int] = {one.id: one.num_rows for one in base.metadata}
        after: dict[int, int] = {one.id: one.num_rows for one in map(load_fragment, self.touched)}
        return sum(before[one] for one in (*after, *self.emptied)) - sum(after.values())


def fit_row_images(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Row images in the order and with exactly the columns of the schema. Refuses unknown columns and repeated ids."""
    unknown = set(rows.column_names) - set(schema.names)
    if unknown:
        raise InvalidInput(f"rows have a column {min(unknown)!r} that the schema lacks", column=min(unknown))
    table = fit_table(rows, schema)
    ids = table["id"]
    if ids.null_count or len(ids.unique()) != len(ids):
        raise InvalidInput("rows to write hold an id twice, or none")
    return table


def added_fields(base: PinnedTable, schema: pa.Schema) -> list[pa.Field]:
    """Columns of the wanted schema that the base lacks; a column of another type is refused."""
    added = []
    for wanted in schema:
        if wanted.name not in base.schema.names:
            added.append(wanted)
        elif not base.schema.field(wanted.name).type.equals(wanted.type):
            raise Unsupported(
                f"column {wanted.name!r} of table {base.table} is {base.schema.field(wanted.name).type}, "
                f"not {wanted.type}",
                advice="Overwrite the table to change the type of a column",
            )
    return added


def delete_from(
    base: PinnedTable, ids: Sequence[str], mapper: Mapper, fragment_ids: Collection[int] | None = None
) -> Deletions:
    """Write one deletion file per fragment of `base` that holds some of the ids."""
    if not ids or not base.rows or (fragment_ids is not None and not fragment_ids):
        return Deletions()
    offsets: dict[int, list[int]] = {}
    for address in base.addresses(ids, fragment_ids)[ROW_ADDRESS].to_pylist():
        fragment_id, offset = split_address(address)
        offsets.setdefault(fragment_id, []).append(offset)

    def shrink(number: int) -> tuple[int, str | None]:
        with lance_call(f"stage deletes in table {base.table}"):
            found = base.lance().get_fragment(number)
            left = found.delete_rows(offsets[number]) if found is not None else None
        return number, None if left is None else dump_fragment(left)

    done = list(mapper(shrink, sorted(offsets)))
    return Deletions(
        tuple(text for _, text in done if text is not None),
        tuple(number for number, text in done if text is None),
    )


def unchanged_fragments(old: PinnedTable, new: PinnedTable) -> set[int]:
    """Fragments with the same files and the same removed rows in both versions."""
    before = {one.id: _signature(one) for one in old.metadata}
    return {one.id for one in new.metadata if before.get(one.id) == _signature(one)}


def _signature(fragment: FragmentMetadata) -> tuple[Any, ...]:
    removed = fragment.deletion_file.path(fragment.id) if fragment.deletion_file is not None else None
    return (tuple((str(file.path), tuple(file.fields)) for file in fragment.files), removed)


def empty_table(schema: pa.Schema) -> LanceOperation.BaseOperation:
    """The birth of a table."""
    from lance import LanceOperation as Op

    return Op.Overwrite(fresh_schema(schema), [])


def operations_of(base: PinnedTable, staged: StagedTable) -> list[LanceOperation.BaseOperation]:
    """One operation for appends, deletes and added columns together, so that one commit makes one version.

    Two only where Lance refuses one: it does not let a fragment vanish while columns are added.
    """
    from lance import LanceOperation as Op

    new = [load_fragment(one) for one in staged.fragments]
    if staged.overwrite or not base.metadata:
        return [Op.Overwrite(fresh_schema(staged.schema), new)]
    touched = [load_fragment(one) for one in staged.touched]
    added = added_fields(base, staged.schema)
    held = base.lance().lance_schema
    target = extend_schema(held, base.lance().max_field_id, added) if added else held
    renumber(new, staged.schema, target)
    if added and not staged.emptied:
        return [Op.Merge(_all_fragments(base, touched, new), target, preserves_nullability=True)]
    first = [Op.Merge(list(base.metadata), target, preserves_nullability=True)] if added else []
    if touched or staged.emptied:
        changed = Op.Update(removed_fragment_ids=list(staged.emptied), updated_fragments=touched, new_fragments=new)
        return [*first, changed]
    return [*first, Op.Append(new)]


def _all_fragments(
    base: PinnedTable, touched: list[FragmentMetadata], new: list[FragmentMetadata]
) -> list[FragmentMetadata]:
    """What the table holds afterwards. Fresh ids are above every id ever used: an index may still name a gone one."""
    replaced = {one.id for one in touched}
    for number, one in enumerate(new, base.max_fragment_id + 1):
        one.id = number
    return [one for one in base.metadata if one.id not in replaced] + touched + new
