"""The graph as users hold it: each verb a few lines over the engine below."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from omnigraph.clock import Clock, IdSource, SystemClock, SystemIds
from omnigraph.config import Config
from omnigraph.errors import BranchClosed, InvalidInput, PreconditionFailed, Unsupported
from omnigraph.history.diff import Change, diff
from omnigraph.history.feed import Feed, FeedLimits, Page
from omnigraph.history.merge import Merge, MergeOptions, Resolution
from omnigraph.history.report import MergeReport
from omnigraph.lang.query.script import MutationScript, pick_query
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.model import Catalog
from omnigraph.lang.schema.steps import SchemaPlan
from omnigraph.lang.statements import Overwrite, Statement
from omnigraph.log.branches import MAIN
from omnigraph.log.record import CommitRecord, parse_commit_id
from omnigraph.log.snapshot import Snapshot
from omnigraph.storage.address import lance_address, normalise, open_store
from omnigraph.storage.backend import Backend
from omnigraph.storage.pauses import NO_PAUSES, Pauses
from omnigraph.storage.probe import lists_in_order
from omnigraph.storage.store import Store
from omnigraph.storage.tables import TableStore
from omnigraph.transactions import GraphTransaction
from omnigraph.upkeep.cleanup import Cleanup
from omnigraph.upkeep.cleanup_report import CleanupReport
from omnigraph.upkeep.findings import VerifyReport
from omnigraph.upkeep.optimize import Optimizer, OptimizeReport
from omnigraph.upkeep.repair import RepairReport, repair
from omnigraph.upkeep.retention import Policy, seconds_of
from omnigraph.upkeep.tags import Tags
from omnigraph.upkeep.verify import verify_graph
from omnigraph.views import CommitInfo, GraphView, Table
from omnigraph.write.birth import init_graph
from omnigraph.write.mutate import Mutation, Script
from omnigraph.write.plan import Receipt, WriteOptions
from omnigraph.write.schema_change import SchemaChange
from omnigraph.write.site import Branch, Site

if TYPE_CHECKING:
    from omnigraph.engine.limits import QueryLimits
    from omnigraph.engine.result import Result

Freshness = Literal["latest"] | float

_TOKEN = 8


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
        # Names as this handle knows them: an old commit must be readable even if the newest record is not.
        names = self._site.catalogs.get(self._branch.publisher.head.schema)
        return self._view_of(self._site.records(stream).record(seq), names)

    def snapshot(self, *, indexes: bool = False) -> dict[str, Any]:
        return {"branch": self.branch_name, **self.view().snapshot(indexes=indexes)}

    def commits(
        self, limit: int | None = 20, *, actor: str | None = None, kind: str | None = None, branch: str | None = None
    ) -> list[CommitInfo]:
        return self.view().commits(limit, actor=actor, kind=kind, branch=branch)

    def table(self, name: str) -> Table:
        return self.view().table(name)

    def query(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        limits: QueryLimits | None = None,
    ) -> Result:
        """Run a reading query on the branch as it is now; the result names the commit it was read from."""
        return self.view().query(source, params, name=name, limits=limits)

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
    ) -> GraphTransaction:
        """Several mutations in one commit, each seeing the ones before; for use in a `with` block."""
        self._for_writing()
        options = WriteOptions(actor, message, client_key, if_commit, "fail")
        return GraphTransaction(self._site.backend, self._branch.writer, options, self._holder)

    def fold(self) -> str | None:
        """Move what rides in the newest record into tables. The commit that did it, or None."""
        self._for_writing()
        self._branch.publisher.refresh()
        done = self._branch.folder.fold(self._holder)
        return done.commit_id if done else None

    def diff(
        self,
        old: str,
        new: str | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Iterator[Change]:
        """What changed from `old` to `new`: commits or branches; by default up to this branch as it is now."""
        before, after = self._state(old), self._state(new)
        return diff(before, after, kinds=kinds, types=types, ops=ops)

    def changes(self, since: str | None = None, *, limits: FeedLimits | None = None) -> Page:
        """Commits of this branch after the cursor `since`, each with its changes, and the cursor to go on from."""
        site = self._site
        return Feed(site.backend, site.catalogs, self._branch.publisher.records, limits or FeedLimits()).page(since)

    def refresh(self) -> str:
        """Look for newer commits now. The newest commit's id."""
        return self.view(fresh=True).commit_id

    def on_branch(self, name: str) -> Graph:
        """A handle on another branch of the same graph."""
        return Graph(self._site, self._site.branch(name), freshness=self._freshness)

    def optimize(
        self,
        types: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> OptimizeReport:
        """Fold, compact and index this branch, or only some types of it; one commit, none if there is nothing to do."""
        if not dry_run:
            self._for_writing()
        optimizer = Optimizer(self._site, self._branch, self._holder, types=types, progress=progress)
        return optimizer.preview() if dry_run else optimizer.run()

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: str | None = None,
        confirm: bool = False,
        policy: Policy | None = None,
    ) -> CleanupReport:
        """Collect commits beyond the newest `keep` and older than `older_than` ("7d"), and files that no commit names.

        Only a preview unless `confirm`. All branches; tags, starts of branches and merge bases stay. `policy` has
        the finer settings, and then decides alone.
        """
        wanted = policy or Policy(keep, seconds_of(older_than) if older_than is not None else None)
        if confirm:
            self._for_writing()
        holders = {self._branch.entry.stream: self._holder} if self._holder else {}
        run = Cleanup(self._site, wanted, holders)
        return run.run() if confirm else run.preview()

    def verify(self, *, deep: bool = False) -> VerifyReport:
        """Check the whole graph, all branches: records, registry, tables, files, rows. `deep` reads every file."""
        return verify_graph(self._site, deep=deep)

    def repair(self) -> RepairReport:
        """Make anew what is derived and damaged: indexes, registry tombstones. Data is never guessed."""
        self._for_writing()
        return repair(self._site, self._holder)

    @property
    def tags(self) -> Tags:
        """Names for commits, which cleanup never collects."""
        return Tags(self._site)

    def close(self) -> None:
        """Give up an exclusive claim, if this handle has one."""
        if self._holder is not None:
            self._site.release(self._branch, self._holder, WriteOptions())
            self._holder = None

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _state(self, name: str | None) -> Snapshot:
        """A commit, or the newest commit of a branch."""
        if name is None:
            return self.view().state
        found = self.branch._resolve(name)
        record = found if isinstance(found, CommitRecord) else found.publisher.refresh()
        return self._view_of(record).state

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

    def merge(
        self,
        source: str,
        into: str | None = None,
        *,
        cell_level: bool = False,
        resolve: Resolution | None = None,
        per_entity: Mapping[tuple[str, str], Resolution] | None = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
    ) -> MergeReport:
        """Merge the newest commit of `source` into `into` (by default this handle's branch), in one commit.

        Raises MergeConflict with all conflicts and writes nothing if there are any that no resolution settles.
        """
        site = self._graph._site
        if not dry_run:
            self._graph._for_writing()
        target = self._graph._branch if into is None else site.branch(into)
        if source == target.name:
            raise InvalidInput(f"branch {source!r} cannot be merged into itself", code="self_merge", branch=source)
        head = site.branch(source).publisher.refresh()
        options = MergeOptions(cell_level, resolve, per_entity or {})
        merge = Merge(site.backend, site.catalogs, site.records, head, options)
        if dry_run:
            return MergeReport.preview(target.writer.preview(merge))
        write = WriteOptions(actor, message or f"merge {source}", client_key, if_commit)
        receipt = target.writer.run(merge, write, self._graph._holder if into is None else None)
        return MergeReport.of(receipt, branch_deleted=delete_branch and self._delete_merged(source, head, actor))

    def _delete_merged(self, source: str, merged: CommitRecord, actor: str | None) -> bool:
        """Delete a branch whose every commit was merged; one that has moved on since stays."""
        try:
            self._graph._site.delete_branch(source, WriteOptions(actor, if_commit=merged.commit_id))
        except PreconditionFailed:
            return False
        return True

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


def open_at(
    uri: str | os.PathLike[str],
    commit_id: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> GraphView:
    """One commit, read-only, without a look at any branch: it can be read even if a newer record is damaged."""
    stream, seq = parse_commit_id(commit_id)
    site = _shared_site(os.fspath(uri), True, storage_options, config)
    record = site.records(stream).record(seq)
    return GraphView(site, Snapshot(site.backend, record, site.catalogs.get(record.schema)))


def verify(
    uri: str | os.PathLike[str],
    *,
    deep: bool = False,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> VerifyReport:
    """Check a graph without opening a branch of it: that must be possible whatever is damaged."""
    return verify_graph(_shared_site(os.fspath(uri), True, storage_options, config), deep=deep)


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
        return path.read_bytes().decode("utf-8"), str(path)
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
