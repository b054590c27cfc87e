"""One step of a schema change, on the model. A step that would make no sense on a state leaves it as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.mutate.schema_change.model import (
    CARDS,
    EDGE_NAMES,
    ENUM,
    KINDS,
    NODE_NAMES,
    PATTERNS,
    PROPERTY_NAMES,
    RANGES,
    Prop,
    State,
    TypeModel,
)

Numbers = tuple[int, int, int]
"""What chance decided; each step takes from them what it needs."""


class SchemaEdit:
    """A schema change in the making: steps on `state`, which began as `before`."""

    def __init__(self, before: State) -> None:
        self.before = before
        self.state = before.copy()

    def step(self, name: str, numbers: Numbers) -> None:
        STEPS[name](self, *numbers)

    # --- types ---------------------------------------------------------------------------------------------------

    def add_node(self, i: int, _j: int, _k: int) -> None:
        free = self._free_names(NODE_NAMES, [node.name for node in self.before.nodes], self.state.nodes)
        if free:
            self.state.add(TypeModel(free[i % len(free)], [Prop("k", "String", nullable=False)]))

    def add_edge(self, i: int, j: int, k: int) -> None:
        free = self._free_names(EDGE_NAMES, [edge.name for edge in self.before.edges], self.state.edges)
        nodes = self.state.nodes
        if free and nodes:
            ends = nodes[j % len(nodes)].number, nodes[k % len(nodes)].number
            self.state.add(TypeModel(free[i % len(free)], [], *ends, CARDS[(i + j + k) % len(CARDS)]))

    def rename_type(self, i: int, j: int, _k: int) -> None:
        type = self._type(i)
        if type is None:
            return
        pool, alike = (EDGE_NAMES, self.state.edges) if type.is_edge else (NODE_NAMES, self.state.nodes)
        free = [name for name in pool if name not in [sibling.name for sibling in alike]]
        if not free or type.number not in self.before.types or self._was_renamed_type(type):
            return
        new = free[j % len(free)]
        former_owner = next(
            (old for old in self.before.types.values() if old.is_edge == type.is_edge and old.name == new), None
        )
        if former_owner is None or former_owner.hint != self.before.types[type.number].name:
            type.name = new

    def drop_type(self, i: int, _j: int, _k: int) -> None:
        type = self._type(i)
        if type is not None and (type.is_edge or len(self.state.nodes) > 1):
            self.state.drop(type)

    # --- properties ----------------------------------------------------------------------------------------------

    def add_property(self, i: int, j: int, k: int) -> None:
        self._add(i, j, k, required=False)

    def add_required(self, i: int, j: int, k: int) -> None:
        self._add(i, j, k, required=True)

    def _add(self, i: int, j: int, k: int, *, required: bool) -> None:
        type = self._type(i)
        if type is None:
            return
        old = self.before.types.get(type.number)
        free = self._free_names(PROPERTY_NAMES, [prop.name for prop in old.props] if old else [], type.props)
        if not free:
            return
        prop = Prop(free[j % len(free)], KINDS[k % len(KINDS)])
        if required:
            prop.nullable, prop.default = False, prop.values[(i + j) % len(prop.values)]
        prop.unique = (i + k) % 5 == 0 and prop.type != "[I32]"
        type.props.append(prop)

    def rename_property(self, i: int, j: int, k: int) -> None:
        entity_type, prop = self._property(i, j, with_key=True)
        old = self.before.types.get(entity_type.number) if entity_type else None
        old_props = {was.number: was for was in old.props} if old else {}
        if (
            entity_type is None
            or prop is None
            or prop.number not in old_props
            or old_props[prop.number].name != prop.name
        ):
            return
        free = [name for name in PROPERTY_NAMES if name not in [sibling.name for sibling in entity_type.props]]
        if not free:
            return
        new = free[k % len(free)]
        former_owner = next((was for was in old_props.values() if was.name == new), None)
        if former_owner is None or former_owner.hint != prop.name:
            prop.name = new

    def drop_property(self, i: int, j: int, _k: int) -> None:
        entity_type, prop = self._property(i, j)
        if entity_type is not None and prop is not None:
            entity_type.props.remove(prop)

    # --- wider ---------------------------------------------------------------------------------------------------

    def widen(self, i: int, j: int, k: int) -> None:
        _, prop = self._property(i, j)
        if prop is None:
            return
        wider = {"I32": "I64", "F32": "F64"}
        if prop.type == "enum":
            prop.members = min(len(ENUM), prop.members + 1)
        elif prop.type in wider and k % 2:
            prop.type = wider[prop.type]
        else:
            prop.nullable = True

    def drop_rules(self, i: int, j: int, _k: int) -> None:
        entity_type, prop = self._property(i, j)
        if prop is not None:
            prop.unique, prop.range, prop.check = False, None, None
        elif entity_type is not None:
            entity_type.card = (0, None)

    # --- tighter -------------------------------------------------------------------------------------------------

    def require(self, i: int, j: int, _k: int) -> None:
        _, prop = self._property(i, j)
        if prop is not None and self._is_old(prop):
            prop.nullable = False

    def make_unique(self, i: int, j: int, _k: int) -> None:
        _, prop = self._property(i, j)
        if prop is not None and prop.type != "[I32]":
            prop.unique = True

    def limit(self, i: int, j: int, k: int) -> None:
        """A range for numbers, a check for text; the default, if any, must pass."""
        _, prop = self._property(i, j)
        if prop is None:
            return
        before = prop.range, prop.check
        if prop.type in ("I32", "I64", "F32", "F64"):
            prop.range = RANGES[k % len(RANGES)]
        elif prop.type == "String":
            prop.check = PATTERNS[k % len(PATTERNS)]
        if prop.default is not None and not prop.allows(prop.default):
            prop.range, prop.check = before

    def limit_edges(self, i: int, j: int, _k: int) -> None:
        edges = self.state.edges
        if edges:
            edges[i % len(edges)].card = CARDS[j % len(CARDS)]

    # --- who -----------------------------------------------------------------------------------------------------

    def _type(self, i: int) -> TypeModel | None:
        types = list(self.state.types.values())
        return types[i % len(types)] if types else None

    def _property(self, i: int, j: int, *, with_key: bool = False) -> tuple[TypeModel | None, Prop | None]:
        type = self._type(i)
        if type is None:
            return None, None
        props = type.props[0 if with_key or type.is_edge else 1 :]
        return type, props[j % len(props)] if props else None

    def _is_old(self, prop: Prop) -> bool:
        return any(prop.number == was.number for type_def in self.before.types.values() for was in type_def.props)

    def _was_renamed_type(self, entity_type: TypeModel) -> bool:
        return self.before.types[entity_type.number].name != entity_type.name

    def _free_names(
        self, pool: Sequence[str], before: Sequence[str], now: Sequence[TypeModel] | Sequence[Prop]
    ) -> list[str]:
        """Names for something new. A name of before means the old thing, unless a rename took that one away."""
        used = [item.name for item in now]
        things: list[TypeModel | Prop] = [*self.before.types.values(), *self._old_props()]
        old = {thing.number: thing.name for thing in things}
        moved = [old[item.number] for item in now if item.number in old and old[item.number] != item.name]
        return [name for name in pool if name not in used and (name not in before or name in moved)]

    def _old_props(self) -> list[Prop]:
        return [prop for type_def in self.before.types.values() for prop in type_def.props]


STEPS: dict[str, Callable[..., None]] = {
    "add_node": SchemaEdit.add_node,
    "add_edge": SchemaEdit.add_edge,
    "rename_type": SchemaEdit.rename_type,
    "drop_type": SchemaEdit.drop_type,
    "add_property": SchemaEdit.add_property,
    "add_required": SchemaEdit.add_required,
    "rename_property": SchemaEdit.rename_property,
    "drop_property": SchemaEdit.drop_property,
    "widen": SchemaEdit.widen,
    "drop_rules": SchemaEdit.drop_rules,
    "require": SchemaEdit.require,
    "make_unique": SchemaEdit.make_unique,
    "limit": SchemaEdit.limit,
    "limit_edges": SchemaEdit.limit_edges,
}
