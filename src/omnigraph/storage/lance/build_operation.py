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
from omnigraph.storage.lance.staged_table import StagedTable, deletion_path, dump_fragment, load_fragment

if TYPE_CHECKING:
    from lance import LanceOperation
    from lance.fragment import FragmentMetadata

#: Calls a function for each argument, possibly in parallel, and yields the results in order.
Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Deletions:
    """How fragments of one base change when rows are removed from it."""

    touched: tuple[str, ...] = ()  # fragments with a grown deletion file, as JSON
    emptied: tuple[int, ...] = ()  # ids of fragments that lose their last row

    def of_fragments(self, fragment_ids: Collection[int]) -> Deletions:
        """The deletions in these fragments only."""
        touched = tuple(text for text in self.touched if json.loads(text)["id"] in fragment_ids)
        return Deletions(touched, tuple(fragment_id for fragment_id in self.emptied if fragment_id in fragment_ids))

    def __add__(self, more: Deletions) -> Deletions:
        return Deletions(self.touched + more.touched, self.emptied + more.emptied)

    def rows(self, base: PinnedTable) -> int:
        """How many rows of `base` these deletions remove."""
        before: dict[int, int] = {fragment.id: fragment.num_rows for fragment in base.metadata}
        after: dict[int, int] = {fragment.id: fragment.num_rows for fragment in map(load_fragment, self.touched)}
        return sum(before[fragment_id] for fragment_id in (*after, *self.emptied)) - sum(after.values())


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


def find_new_fields(base: PinnedTable, schema: pa.Schema) -> list[pa.Field]:
    """Fields of `schema` that the base lacks. Raises Unsupported if the base has a column in another type."""
    new_fields = []
    for field in schema:
        if field.name not in base.schema.names:
            new_fields.append(field)
        elif not base.schema.field(field.name).type.equals(field.type):
            raise Unsupported(
                f"column {field.name!r} of table {base.table} is {base.schema.field(field.name).type}, "
                f"not {field.type}",
                advice="Overwrite the table to change the type of a column",
            )
    return new_fields


def delete_from(
    base: PinnedTable, ids: Sequence[str], mapper: Mapper, fragment_ids: Collection[int] | None = None
) -> Deletions:
    """Write one deletion file per fragment of `base` that holds some of the ids."""
    if not ids or not base.rows or (fragment_ids is not None and not fragment_ids):
        return Deletions()
    offsets: dict[int, list[int]] = {}
    for fragment_id, offset in map(split_address, base.addresses(ids, fragment_ids)[ROW_ADDRESS].to_pylist()):
        offsets.setdefault(fragment_id, []).append(offset)

    def shrink(shrunk_id: int) -> tuple[int, str | None]:
        with lance_call(f"stage deletes in table {base.table}"):
            fragment = base.lance().get_fragment(shrunk_id)
            shrunk_fragment = fragment.delete_rows(offsets[shrunk_id]) if fragment is not None else None
        return shrunk_id, None if shrunk_fragment is None else dump_fragment(shrunk_fragment)

    results = list(mapper(shrink, sorted(offsets)))
    return Deletions(
        tuple(text for _, text in results if text is not None),
        tuple(emptied_id for emptied_id, text in results if text is None),
    )


def find_unchanged_fragments(old: PinnedTable, new: PinnedTable) -> set[int]:
    """Ids of the fragments with the same files and the same removed rows in both versions."""
    before = {fragment.id: _signature(fragment) for fragment in old.metadata}
    return {fragment.id for fragment in new.metadata if before.get(fragment.id) == _signature(fragment)}


def _signature(fragment: FragmentMetadata) -> tuple[Any, ...]:
    return (tuple((str(file.path), tuple(file.fields)) for file in fragment.files), deletion_path(fragment))


def birth_operation(schema: pa.Schema) -> LanceOperation.BaseOperation:
    """The operation that creates an empty table."""
    from lance import LanceOperation as Op

    return Op.Overwrite(fresh_schema(schema), [])


def build_operations(base: PinnedTable, staged: StagedTable) -> list[LanceOperation.BaseOperation]:
    """One operation for appends, deletes and added columns together, so that one commit makes one version.

    Two operations only where Lance refuses one: it does not let a fragment vanish while columns are added.
    """
    from lance import LanceOperation as Op

    new = [load_fragment(text) for text in staged.fragments]
    if staged.overwrite or not base.metadata:
        return [Op.Overwrite(fresh_schema(staged.schema), new)]
    touched = [load_fragment(text) for text in staged.touched]
    new_fields = find_new_fields(base, staged.schema)
    base_schema = base.lance().lance_schema
    target = extend_schema(base_schema, base.lance().max_field_id, new_fields) if new_fields else base_schema
    renumber(new, staged.schema, target)
    if new_fields and not staged.emptied:
        return [Op.Merge(_list_fragments_after(base, touched, new), target, preserves_nullability=True)]
    first = [Op.Merge(list(base.metadata), target, preserves_nullability=True)] if new_fields else []
    if touched or staged.emptied:
        changed = Op.Update(removed_fragment_ids=list(staged.emptied), updated_fragments=touched, new_fragments=new)
        return [*first, changed]
    return [*first, Op.Append(new)]


def _list_fragments_after(
    base: PinnedTable, touched: list[FragmentMetadata], new: list[FragmentMetadata]
) -> list[FragmentMetadata]:
    """All fragments of the new version. New ids are above every id ever used: an index may still name old ones."""
    replaced = {fragment.id for fragment in touched}
    for fragment_id, fragment in enumerate(new, base.max_fragment_id + 1):
        fragment.id = fragment_id
    return [fragment for fragment in base.metadata if fragment.id not in replaced] + touched + new
