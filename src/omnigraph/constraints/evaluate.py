"""Evaluates constraints in-process, over rows of Python values that a caller reads from the images of a change.

`prepare_constraints` compiles the constraints that a change can violate into functions, together with the lookups of
committed rows that they need. The caller does the lookups, then calls the functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

from omnigraph.constraints import relations
from omnigraph.constraints.compile import ChangedImages, Constraint, compile_constraints
from omnigraph.schema.catalog import Catalog, Scalar, TypeDef
from omnigraph.schema.values import canonical_text

#: How many shapes of changes stay prepared. A program has few: each of its statements makes one.
_CACHED_SHAPES = 256

RowTuple = tuple[Any, ...]
"""Values in the order of a relation's columns."""

ReadImage = Callable[[relations.ImageRows], Iterable[RowTuple]]
"""Reads the rows of an image, with its columns only. May be called more than once."""


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """The change that a relation is evaluated over: how to read its images, and the groups computed so far."""

    read: ReadImage
    groups: dict[int, list[RowTuple]] = field(default_factory=dict)


Evaluator = Callable[[EvaluationContext], Iterable[RowTuple]]
"""Returns the rows of a relation. Rows stream; the compared columns of joins and the groups are held in memory, so that
a constraint needs no more memory than its own columns. Holds no state, so any number of changes can share it."""

_Key = Callable[[RowTuple], Any]


# --- prepared constraints --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreparedLookup:
    """The committed rows that a constraint needs: those of `table` with a key in `column`.

    `keys` returns rows that hold a key at `key_index`.
    """

    table: str
    column: str
    columns: tuple[str, ...]
    keys: Evaluator
    key_index: int


@dataclass(frozen=True, slots=True)
class PreparedConstraint:
    """A constraint as a function. `lookup_columns` names the column by which rows of a `kept` image are looked up."""

    constraint: Constraint
    evaluate: Evaluator
    lookups: tuple[PreparedLookup, ...]
    lookup_columns: Mapping[relations.ImageRows, str]


def prepare_constraints(
    catalog: Catalog, images: Mapping[str, ChangedImages], strict: bool
) -> tuple[PreparedConstraint, ...]:
    """Compile the constraints that a change with these images can violate; cached by schema and images."""
    return _prepare_all(_CatalogKey(catalog), tuple(images.items()), strict)


class _CatalogKey:
    """A catalog that is compared by its hash: cheap, and equal for every copy of the catalog."""

    __slots__ = ("catalog",)

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def __hash__(self) -> int:
        return hash(self.catalog.hash)

    def __eq__(self, key: object) -> bool:
        return isinstance(key, _CatalogKey) and self.catalog.hash == key.catalog.hash


@lru_cache(maxsize=_CACHED_SHAPES)
def _prepare_all(
    key: _CatalogKey, images: tuple[tuple[str, ChangedImages], ...], strict: bool
) -> tuple[PreparedConstraint, ...]:
    constraints = compile_constraints(key.catalog, dict(images), strict=strict)
    return tuple(_prepare(key.catalog, constraint) for constraint in constraints)


def _prepare(catalog: Catalog, constraint: Constraint) -> PreparedConstraint:
    compiler = RelationCompiler(catalog.by_id[constraint.type_id])
    lookups = tuple(find_lookups(constraint.query))
    lookup_columns = {image: keys.column for image, keys in lookups}
    assert all(lookup_columns[image] == keys.column for image, keys in lookups), constraint
    prepared = tuple(
        PreparedLookup(
            image.table,
            keys.column,
            image.columns,
            compiler.compile(keys.keys),
            _column_index(keys.keys, keys.key),
        )
        for image, keys in lookups
    )
    return PreparedConstraint(constraint, compiler.compile(constraint.query), prepared, lookup_columns)


# --- relations as functions ------------------------------------------------------------------------------------------


class RelationCompiler:
    """Compiles relations into functions. `type_def` is the type whose property columns they compare."""

    def __init__(self, type_def: TypeDef) -> None:
        self._evaluators: dict[relations.Relation, Evaluator] = {}
        self._comparable_forms = {
            prop.id: partial(_to_text, partial(canonical_text, prop))
            for prop in type_def.properties
            if prop.type.scalar is not Scalar.STRING
        }

    def compile(self, relation: relations.Relation) -> Evaluator:
        if relation not in self._evaluators:
            self._evaluators[relation] = self._build(relation)
        return self._evaluators[relation]

    def _build(self, relation: relations.Relation) -> Evaluator:
        match relation:
            case relations.ImageRows():
                return lambda context: context.read(relation)
            case relations.ColumnProjection():
                return self._map_rows(relation.input, _selector(relation.input, [of for _, of in relation.names]))
            case relations.WithConstant():
                tag = (relation.text,)
                return self._map_rows(relation.input, lambda row: row + tag)
            case relations.WithoutNulls() | relations.WhereUnequal() | relations.WhereOutside():
                inner, holds = self.compile(relation.input), _condition(relation)
                return lambda context: filter(holds, inner(context))
            case relations.UnionAll():
                parts = [self.compile(part) for part in relation.inputs]
                return lambda context: (row for part in parts for row in part(context))
            case relations.DistinctRows():
                inner = self.compile(relation.input)
                return lambda context: dict.fromkeys(inner(context))
            case relations.GroupExtremes():
                return self._group_extremes(relation)
            case relations.GroupCount():
                inner, by = self.compile(relation.input), _selector(relation.input, relation.by)
                return lambda context: ((*group, n) for group, n in Counter(map(by, inner(context))).items())
            case relations.EqualJoin():
                return self._equal_join(relation)
            case relations.WithMatch() | relations.WithoutMatch():
                return self._filter_by_match(relation)
            case relations.MatchCount():
                return self._count_matches(relation)

    def _map_rows(self, relation: relations.Relation, map_row: Callable[[RowTuple], RowTuple]) -> Evaluator:
        inner = self.compile(relation)
        return lambda context: map(map_row, inner(context))

    def _group_extremes(self, relation: relations.GroupExtremes) -> Evaluator:
        inner, value_index = self.compile(relation.input), _column_index(relation.input, relation.of)
        by, key = _selector(relation.input, relation.by), self._key(relation.input, relation.by)

        def group_rows(context: EvaluationContext) -> list[RowTuple]:
            groups: dict[Any, tuple[RowTuple, Any, Any]] = {}
            for row in inner(context):
                group, value = key(row), row[value_index]
                extremes = groups.get(group)
                if extremes is None:
                    groups[group] = (by(row), value, value)
                elif value < extremes[1]:
                    groups[group] = (by(row), value, extremes[2])
                elif value > extremes[2]:
                    groups[group] = (extremes[0], extremes[1], value)
            return [(*values, least, greatest) for values, least, greatest in groups.values()]

        def evaluate(context: EvaluationContext) -> list[RowTuple]:
            # Computed once: a unique constraint reads the same groups twice, and so do its lookups.
            if id(relation) not in context.groups:
                context.groups[id(relation)] = group_rows(context)
            return context.groups[id(relation)]

        return evaluate

    def _equal_join(self, relation: relations.EqualJoin) -> Evaluator:
        left_rows, right_rows, left_key, right_key = self._sides(relation)
        added = _selector(relation.right, relations.columns_of(relation)[len(relations.columns_of(relation.left)) :])

        def evaluate(context: EvaluationContext) -> Iterator[RowTuple]:
            matches: dict[Any, list[RowTuple]] = {}
            for row in right_rows(context):
                matches.setdefault(right_key(row), []).append(added(row))
            if matches:
                for row in left_rows(context):
                    for right_values in matches.get(left_key(row), ()):
                        yield row + right_values

        return evaluate

    def _filter_by_match(self, relation: relations.WithMatch | relations.WithoutMatch) -> Evaluator:
        """Hold the left side in memory and stream the right side, which is the larger one if one of them is large."""
        left_rows, right_rows, left_key, right_key = self._sides(relation)
        is_semi = isinstance(relation, relations.WithMatch)

        def evaluate(context: EvaluationContext) -> list[RowTuple]:
            rows = list(left_rows(context))
            if not rows:
                return rows
            matched_keys = set(map(left_key, rows)).intersection(map(right_key, right_rows(context)))
            return [row for row in rows if (left_key(row) in matched_keys) is is_semi]

        return evaluate

    def _count_matches(self, relation: relations.MatchCount) -> Evaluator:
        left_rows, right_rows, left_key, right_key = self._sides(relation)

        def evaluate(context: EvaluationContext) -> Iterator[RowTuple]:
            counts = Counter(map(right_key, right_rows(context)))
            return ((*row, counts[left_key(row)]) for row in left_rows(context))

        return evaluate

    def _sides(
        self, relation: relations.EqualJoin | relations.WithMatch | relations.WithoutMatch | relations.MatchCount
    ) -> tuple[Evaluator, Evaluator, _Key, _Key]:
        left_columns, right_columns = zip(*relation.on, strict=True)
        keys = self._key(relation.left, left_columns), self._key(relation.right, right_columns)
        return self.compile(relation.left), self.compile(relation.right), *keys

    def _key(self, relation: relations.Relation, columns: Sequence[str]) -> _Key:
        """The function that takes the compared values of a row, in a form that Python compares as the schema does."""
        select: _Key = itemgetter(*(_column_index(relation, column) for column in columns))
        forms = [self._comparable_forms.get(column, _identity) for column in columns]
        if all(form is _identity for form in forms):
            return select
        if len(forms) == 1:
            return lambda row: forms[0](select(row))
        return lambda row: tuple(form(value) for form, value in zip(forms, select(row), strict=True))


def _identity(value: Any) -> Any:
    return value


def _to_text(text_of: Callable[[Any], str], value: Any) -> str | None:
    return None if value is None else text_of(value)


def _condition(
    relation: relations.WithoutNulls | relations.WhereUnequal | relations.WhereOutside,
) -> Callable[[RowTuple], bool]:
    match relation:
        case relations.WithoutNulls():
            indexes = [_column_index(relation.input, column) for column in relation.columns]
            return lambda row: all(row[index] is not None for index in indexes)
        case relations.WhereUnequal():
            left_index = _column_index(relation.input, relation.left)
            right_index = _column_index(relation.input, relation.right)
            return lambda row: row[left_index] != row[right_index]
        case relations.WhereOutside():
            number, low, high = _column_index(relation.input, relation.column), relation.low, relation.high
            return lambda row: row[number] < low or (high is not None and row[number] > high)


def _selector(relation: relations.Relation, columns: Sequence[str]) -> Callable[[RowTuple], RowTuple]:
    indexes = [_column_index(relation, column) for column in columns]
    if len(indexes) == 1:
        (index,) = indexes
        return lambda row: (row[index],)
    return itemgetter(*indexes)


def _column_index(relation: relations.Relation, column: str) -> int:
    return relations.columns_of(relation).index(column)


# --- lookups ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookupKeys:
    """Which rows must be looked up: those whose `column` has a value that occurs in the column `key` of `keys`."""

    column: str
    keys: relations.Relation
    key: str


def find_lookups(
    relation: relations.Relation, known_keys: LookupKeys | None = None
) -> Iterator[tuple[relations.ImageRows, LookupKeys]]:
    """Yield every `kept` image in the relation with keys that come from the change alone.

    A join hands the keys of one side to the other. Every `kept` image of a constraint is on the receiving side of some
    join whose other side consists of changed rows only. So its keys are known before anything is read, all lookups of
    all constraints run at once, and a small change never scans a table.

    `known_keys`: the reader of the relation needs only the rows with these keys.
    """
    match relation:
        case relations.ImageRows():
            if relation.kind == "kept":
                assert known_keys is not None, f"{relation} would be read as a whole"
                yield relation, known_keys
        case relations.ColumnProjection():
            keys = known_keys and replace(known_keys, column=dict(relation.names)[known_keys.column])
            yield from find_lookups(relation.input, keys)
        case relations.UnionAll():
            for part in relation.inputs:
                yield from find_lookups(part, known_keys)
        case relations.WithMatch() if (
            known_keys is None and _reads_kept(relation.left) and not _reads_kept(relation.right)
        ):
            (left_column, right_column), *_ = relation.on
            yield from find_lookups(relation.left, LookupKeys(left_column, relation.right, right_column))
        case relations.EqualJoin() | relations.WithMatch() | relations.WithoutMatch() | relations.MatchCount():
            (left_column, right_column), *_ = relation.on
            yield from find_lookups(relation.left, known_keys)
            if _reads_kept(relation.right):
                keys = LookupKeys(right_column, _without_kept(relation.left), left_column)
                yield from find_lookups(relation.right, keys)
        case relations.GroupExtremes() | relations.GroupCount():
            # A group is complete only if all rows with its key are read, so the keys must be a grouping column.
            is_grouped = known_keys is not None and known_keys.column in relation.by
            yield from find_lookups(relation.input, known_keys if is_grouped else None)
        case _:
            yield from find_lookups(relation.input, known_keys)


def _without_kept(relation: relations.Relation) -> relations.Relation:
    """A relation that reads no committed rows and has at least the keys of this one."""
    if not _reads_kept(relation):
        return relation
    match relation:
        case relations.WithMatch() if not _reads_kept(relation.right):
            return relations.ColumnProjection(relation.right, relation.on)
        case relations.WithMatch() | relations.WithoutMatch() | relations.MatchCount():
            return _without_kept(relation.left)
        case relations.WithoutNulls() | relations.WhereUnequal() | relations.WhereOutside() | relations.WithConstant():
            return _without_kept(relation.input)
        case relations.ColumnProjection():
            return relations.ColumnProjection(_without_kept(relation.input), relation.names)
    raise AssertionError(f"the keys of {relation} are not known before it is read")


def _reads_kept(relation: relations.Relation) -> bool:
    if isinstance(relation, relations.ImageRows):
        return relation.kind == "kept"
    return any(_reads_kept(part) for part in relations.inputs_of(relation))
