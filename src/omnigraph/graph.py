"""The graph as users hold it: each verb a few lines over the engine below."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Literal
from weakref import WeakValueDictionary

import pyarrow as pa

from omnigraph.clock import Clock, IdSource, SystemClock, SystemIds
from omnigraph.config import Config
from omnigraph.errors import BranchClosed, InvalidInput, Unsupported
from omnigraph.lang.query.script import MutationScript, pick_query
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.model import Catalog, TypeDef
from omnigraph.lang.schema.steps import SchemaPlan
from omnigraph.lang.statements import Condition, Overwrite, Statement
from omnigraph.log.branches import MAIN
from omnigraph.log.history import first_parents
from omnigraph.log.record import CommitRecord, Header, parse_commit_id
from omnigraph.log.snapshot import Snapshot, no_such_type
from omnigraph.log.stamp import INTERNAL_SCHEMA
from omnigraph.plan.predicate import column_of, to_expression
from omnigraph.storage.address import lance_address, normalise, open_store
from omnigraph.storage.backend import Backend
from omnigraph.storage.pauses import NO_PAUSES, Pauses
from omnigraph.storage.probe import lists_in_order
from omnigraph.storage.store import Store
from omnigraph.storage.tables import TableStore
from omnigraph.write.birth import init_graph
from omnigraph.write.mutate import Mutation, Script
from omnigraph.write.plan import Receipt, WriteOptions
from omnigraph.write.schema_change import SchemaChange
from omnigraph.write.site import Branch, Site
from omnigraph.write.transaction import Transaction

Freshness = Literal["latest"] | float

_TOKEN = 8


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """A commit as users see it."""

    commit_id: str
    seq: int
    parents: tuple[str, ...]
    kind: str
    actor: str | None
    created_at: str
    message: str | None
    branch: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "parents": list(self.parents)}

    @classmethod
    def of(cls, header: Header) -> CommitInfo:
        return cls(
            header.commit_id,
            header.seq,
            tuple(parent.commit_id for parent in header.parents),
            header.kind,
            header.actor,
            header.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            header.message,
            header.branch,
        )


class Table:
    """One type of one snapshot. `now` is the same type under today's schema, for properties renamed since."""

    def __init__(self, snapshot: Snapshot, one: TypeDef, now: TypeDef | None = None) -> None:
        self._snapshot = snapshot
        self._type = one
        self._named = _also_named(one, now) if now is not None else one

    def to_arrow(self, columns: Sequence[str] | None = None, where: Condition | None = None) -> pa.Table:
        """Rows under the names asked for; by default `id`, for edges `from` and `to`, then all properties."""
        one = self._type
        names = list(columns) if columns is not None else [*_system_names(one), *one.by_name]
        ids = [column_of(self._named, name).id for name in names]
        condition = to_expression(self._named, where) if where is not None else None
        return self._snapshot.view(one).scan(ids, condition).rename_columns(names)

    def count(self) -> int:
        return self._snapshot.view(self._type).count()


class GraphView:
    """A graph pinned to one commit: everything that can be read, nothing that can be written."""

    def __init__(self, site: Site, snapshot: Snapshot, names: Catalog | None = None) -> None:
        self._site = site
        self._snapshot = snapshot
        self._names = names or snapshot.catalog

    @property
    def commit_id(self) -> str:
        return self._snapshot.commit_id

    @property
    def catalog(self) -> Catalog:
        """The compiled schema of this commit."""
        return self._snapshot.catalog

    def table(self, name: str) -> Table:
        """A type by its name at this commit, or by the name it has now: identity survives renames."""
        now = self._names.node(name) or self._names.edge(name)
        known = self._snapshot.catalog.node(name) or self._snapshot.catalog.edge(name)
        if known is None and now is not None:
            known = self._snapshot.catalog.by_id.get(now.id)
        if known is None:
            raise no_such_type(name, self._snapshot.catalog)
        return Table(self._snapshot, known, self._names.by_id.get(known.id))

    def snapshot(self) -> dict[str, Any]:
        """Commit, storage format, and per type the pin, counts and overlay."""
        described = self._snapshot.describe()
        return {"graph_id": self._site.stamp.graph_id, "internal_schema": INTERNAL_SCHEMA, **described}

    def commits(
        self, limit: int | None = 20, *, actor: str | None = None, kind: str | None = None, branch: str | None = None
    ) -> list[CommitInfo]:
        """This commit and those before it, newest first, along first parents; only those that match."""
        return list(
            islice((CommitInfo.of(one) for one in self._headers() if _matches(one, actor, kind, branch)), limit)
        )

    def commit(self) -> dict[str, Any]:
        """This one commit: its place, who made it, and what it did to each table."""
        record = self._snapshot.record
        members = [
            {"op_id": one.op_id, "actor": one.actor, "client_key": one.client_key, "counts": dict(one.counts)}
            for one in record.members
        ]
        touched = [
            {
                "table_key": self.catalog.by_id[table].table_key if table in self.catalog.by_id else table,
                "inserted": one.inserted,
                "updated": one.updated,
                "deleted": one.deleted,
                "staged": one.staged,
            }
            for table, one in sorted(record.touched.items())
        ]
        return {**CommitInfo.of(record.header).to_json(), "members": members, "touched": touched}

    def _headers(self) -> Iterator[Header]:
        return first_parents(self._site.records, self._snapshot.record)


class Graph:
    """A handle on one branch. May be used from several threads, and always sees its own commits."""

    def __init__(
        self, site: Site, branch: Branch, *, freshness: Freshness = "latest", holder: str | None = None
    ) -> None:
        self._site = site
        self._branch = branch
        self._freshness = freshness
        self._holder = holder
        self._asked_at = float("-inf")
        self.branch = Branches(self)

    @property
    def uri(self) -> str:
        return self._site.backend.store.root

    @property
    def graph_id(self) -> str:
        return self._site.stamp.graph_id

    @property
    def branch_name(self) -> str:
        return self._branch.name

    @property
    def schema(self) -> Schema:
        return Schema(self)

    def view(self, *, fresh: bool | None = None) -> GraphView:
        """The branch as it is now, pinned. `fresh` overrides the handle's freshness for this call."""
        record = self._head(fresh)
        if record.kind == "close":
            raise BranchClosed(
                f"branch {self.branch_name!r} was deleted",
                advice="Open the branch again by its name if it was re-created",
                branch=self.branch_name,
            )
        return self._view_of(record)

    def at(self, commit_id: str) -> GraphView:
        """The graph at a commit of any branch."""
        stream, seq = parse_commit_id(commit_id)
        return self._view_of(self._site.records(stream).record(seq), names=self.view().catalog)

    def snapshot(self) -> dict[str, Any]:
        return {"branch": self.branch_name, **self.view().snapshot()}

    def commits(
        self, limit: int | None = 20, *, actor: str | None = None, kind: str | None = None, branch: str | None = None
    ) -> list[CommitInfo]:
        return self.view().commits(limit, actor=actor, kind=kind, branch=branch)

    def table(self, name: str) -> Table:
        return self.view().table(name)

    def apply(
        self,
        statements: Sequence[Statement],
        *,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run statements as one atomic commit. An overwrite is never repeated by itself after a conflict."""
        if any(isinstance(one, Overwrite) for one in statements):
            on_conflict = "fail"
        options = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return self._run(lambda _: statements, options)

    def mutate(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        strict: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run a mutation of the query language as one atomic commit. `name` picks one of several in the text."""
        options = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return self._run(self._script(source, [params or {}], name, strict=strict), options)

    def mutate_many(
        self,
        source: str,
        params: Sequence[Mapping[str, Any]],
        *,
        name: str | None = None,
        strict: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run one mutation for every set of parameters, all in one commit."""
        options = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return self._run(self._script(source, params, name, strict=strict), options)

    def transaction(
        self,
        *,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
    ) -> Transaction:
        """Several mutations in one commit, each seeing the ones before; for use in a `with` block."""
        self._for_writing()
        options = WriteOptions(actor, message, client_key, if_commit, "fail")
        return Transaction(self._site.backend, self._branch.writer, options, self._holder)

    def fold(self) -> str | None:
        """Move what rides in the newest record into tables. The commit that did it, or None."""
        self._for_writing()
        self._branch.publisher.refresh()
        done = self._branch.folder.fold(self._holder)
        return done.commit_id if done else None

    def refresh(self) -> str:
        """Look for newer commits now. The newest commit's id."""
        return self.view(fresh=True).commit_id

    def on_branch(self, name: str) -> Graph:
        """A handle on another branch of the same graph."""
        return Graph(self._site, self._site.branch(name), freshness=self._freshness)

    def close(self) -> None:
        """Give up an exclusive claim, if this handle has one."""
        if self._holder is not None:
            holder, self._holder = self._holder, None
            self._site.release(self._branch, holder, WriteOptions())

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _script(
        self, source: str, params: Sequence[Mapping[str, Any]], name: str | None, *, strict: bool
    ) -> MutationScript:
        return MutationScript(pick_query(source, name), params, self._site.backend.clock.now(), strict)

    def _run(self, script: Script, options: WriteOptions) -> Receipt:
        self._for_writing()
        return self._branch.writer.run(Mutation(self._site.backend, script), options, self._holder)

    def _head(self, fresh: bool | None) -> CommitRecord:
        clock, publisher = self._site.backend.clock, self._branch.publisher
        if fresh is None:
            fresh = self._freshness == "latest" or clock.monotonic() - self._asked_at >= float(self._freshness)
        if not fresh:
            return publisher.head
        self._asked_at = clock.monotonic()
        return publisher.refresh()

    def _view_of(self, record: CommitRecord, names: Catalog | None = None) -> GraphView:
        catalog = self._site.catalogs.get(record.schema)
        return GraphView(self._site, Snapshot(self._site.backend, record, catalog), names)

    def _for_writing(self) -> None:
        if self._site.read_only:
            raise Unsupported(
                "this graph was opened read-only", code="read_only", advice="Open it without read_only=True"
            )


class Schema:
    """`g.schema`: what the schema is, what a new text would change, and the change itself."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def catalog(self) -> Catalog:
        return self._graph.view().catalog

    @property
    def source(self) -> str:
        """The text exactly as it was given."""
        return self.catalog.source

    def plan(self, schema: str | os.PathLike[str]) -> SchemaPlan:
        """The steps that lead to `schema` (a file or its text), and whether they are possible. Nothing is written."""
        text, file = _read_schema(schema)
        return SchemaChange(self._graph._site.backend, text, file=file).plan(self.catalog)[0]

    def apply(
        self,
        schema: str | os.PathLike[str],
        *,
        allow_data_loss: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
    ) -> Receipt:
        """Bring this branch to `schema`, in one commit. `Receipt.result` is the plan that was carried out."""
        graph = self._graph
        graph._for_writing()
        text, file = _read_schema(schema)
        change = SchemaChange(graph._site.backend, text, file=file, allow_data_loss=allow_data_loss)
        options = WriteOptions(actor, message, client_key, if_commit)
        return graph._branch.writer.run(change, options, graph._holder)


class Branches:
    """`g.branch`: create, list and delete branches."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def create(
        self, name: str, source: str | None = None, *, actor: str | None = None, message: str | None = None
    ) -> Graph:
        """A branch at `source` (a branch or commit id; by default this handle's branch), and a handle on it."""
        graph = self._graph
        graph._for_writing()
        made = graph._site.create_branch(name, self._resolve(source), WriteOptions(actor, message))
        return Graph(graph._site, made, freshness=graph._freshness)

    def list(self) -> list[str]:
        return self._graph._site.branch_names()

    def delete(self, name: str, *, actor: str | None = None, message: str | None = None) -> None:
        """Delete the branch. Its commits stay readable by id; branches made from it live on."""
        self._graph._for_writing()
        self._graph._site.delete_branch(name, WriteOptions(actor, message))

    def _resolve(self, source: str | None) -> Branch | CommitRecord:
        site = self._graph._site
        if source is None:
            return self._graph._branch
        if "." in source and source.rpartition(".")[2].isdecimal() and len(source.partition(".")[0]) == _STREAM_LENGTH:
            stream, seq = parse_commit_id(source)
            return site.records(stream).record(seq)
        return site.branch(source)


_STREAM_LENGTH = 26

_SITES: WeakValueDictionary[tuple[object, ...], Site] = WeakValueDictionary()
_SITES_LOCK = Lock()


def make_backend(
    uri: str,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
    *,
    wrap: Callable[[Store], Store] | None = None,
    pauses: Pauses = NO_PAUSES,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> Backend:
    """The parts that reach one graph. `wrap` puts meters, throttles or faults around the store."""
    config = config or Config.from_environment()
    store = open_store(uri, storage_options, fsync=config.fsync)
    address, options = lance_address(uri, storage_options)
    place = normalise(uri, storage_options)
    tables = TableStore(address, options, fsync=config.fsync, local_root=Path(address) if place.is_local else None)
    return Backend(
        store=wrap(store) if wrap else store,
        tables=tables,
        clock=clock or SystemClock(),
        ids=ids or SystemIds(),
        pauses=pauses,
        config=config,
        listed_in_order=lists_in_order(store),
    )


def init(
    uri: str | os.PathLike[str],
    schema: str | os.PathLike[str] | Catalog,
    *,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> Graph:
    """Create a graph. `schema` is a `.pg` file, the text of one, or a compiled catalog."""
    backend = make_backend(os.fspath(uri), storage_options, config)
    init_graph(backend, _catalog_of(schema, backend))
    backend.close()
    return open(uri, storage_options=storage_options, config=config)


def open(
    uri: str | os.PathLike[str],
    branch: str = MAIN,
    *,
    read_only: bool = False,
    freshness: Freshness = "latest",
    exclusive: bool = False,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> Graph:
    """A handle on one branch of a graph. `exclusive` claims the branch for this handle alone until it is closed."""
    if exclusive and read_only:
        raise InvalidInput("a read-only handle cannot be exclusive", advice="Leave out one of the two")
    site = _shared_site(os.fspath(uri), read_only, storage_options, config)
    found = site.branch(branch)
    return Graph(site, found, freshness=freshness, holder=site.claim(found, WriteOptions()) if exclusive else None)


def _shared_site(uri: str, read_only: bool, storage_options: Mapping[str, str] | None, config: Config | None) -> Site:
    """All handles of one process on one graph share a site; a forked child gets its own."""
    config = config or Config.from_environment()
    place = normalise(uri, storage_options)
    key = (os.getpid(), place.uri, tuple(sorted(place.options.items())), read_only, config)
    with _SITES_LOCK:
        known = _SITES.get(key)
    if known is not None:
        return known
    site = Site.open(make_backend(uri, storage_options, config), read_only=read_only)
    with _SITES_LOCK:
        return _SITES.setdefault(key, site)


def _catalog_of(schema: str | os.PathLike[str] | Catalog, backend: Backend) -> Catalog:
    if isinstance(schema, Catalog):
        return schema
    text, file = _read_schema(schema)
    return compile_schema(text, file=file, mint=lambda: backend.ids.token(_TOKEN))


def _read_schema(schema: str | os.PathLike[str]) -> tuple[str, str]:
    """(text, name for errors). A string with a brace or a line break is the text itself; anything else a path."""
    if isinstance(schema, str) and ("{" in schema or "\n" in schema or not schema.strip()):
        return schema, "<schema>"
    path = Path(schema)
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except OSError as error:
        raise InvalidInput(
            f"the schema file {path} cannot be read: {error.strerror}",
            code="schema_file",
            advice="Give the path of a .pg file, or the schema's text",
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"the schema file {path} is not UTF-8", code="schema_file", advice="Save it as UTF-8"
        ) from error


def _also_named(one: TypeDef, now: TypeDef) -> TypeDef:
    """`one` with its properties under today's names too, where an older name does not have that meaning already."""
    renamed = [
        replace(one.by_id[prop.id], name=prop.name)
        for prop in now.properties
        if prop.id in one.by_id and prop.name not in one.by_name
    ]
    return replace(one, properties=(*one.properties, *renamed))


def _system_names(one: TypeDef) -> list[str]:
    return ["id", "from", "to"] if one.kind == "edge" else ["id"]


def _matches(header: Header, actor: str | None, kind: str | None, branch: str | None) -> bool:
    actors = {header.actor, *(one.actor for one in header.members)}
    return (
        (actor is None or actor in actors)
        and (kind is None or kind == header.kind)
        and (branch is None or branch == header.branch)
    )
