"""The demo: a story in twelve steps on a temporary graph. Every claim is checked before it is printed.

The docstring of each step is its printed title.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

import omnigraph as og
from demo import town
from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import ConstraintViolation, LoadRejected, PreconditionFailed
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Statement, Update
from omnigraph.storage.metering import Measurement, MeteredStore
from omnigraph.storage.store import Store

HERE = Path(__file__).parent
SCHEMA = HERE / "people.pg"
WRITERS = 4
ROWS_PER_WRITER = 25
DEPTHS = (1, 100, 500)

console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


def say(text: str) -> None:
    console.print(text)


def check(claim: str, holds: bool) -> None:
    """Prints a claim that holds. Otherwise stops the demo, since a claim that does not hold is a bug."""
    if not holds:
        console.print(f"  [red]✗ {claim}[/red]")
        raise SystemExit(1)
    console.print(f"  [green]✓[/green] {claim}")


def omnigraph(*words: str) -> str:
    """Runs the command line as a user would, and shows the command and its output."""
    console.print(f"  [bold]$ omnigraph {escape(' '.join(words))}[/bold]", soft_wrap=True)
    command = [str(Path(sys.executable).with_name("omnigraph")), *words]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in completed.stdout.splitlines():
        console.print(f"  {line}", markup=False, style="dim", soft_wrap=True)
    return completed.stdout


def names(g: Graph, kind: str = "Person") -> set[str]:
    return set(g.table(kind).to_arrow(columns=["id"])["id"].to_pylist())


# --- the story ------------------------------------------------------------------------------------------------------


def create(address: str) -> None:
    """A graph is declared by a schema file"""
    console.print(Syntax(SCHEMA.read_text(), "java", background_color="default", line_range=(7, 15)))
    omnigraph("lint", str(SCHEMA.relative_to(Path.cwd()) if SCHEMA.is_relative_to(Path.cwd()) else SCHEMA))
    omnigraph("init", address, "--schema", str(SCHEMA))


def write_atomically(address: str) -> None:
    """One commit over four tables"""
    g = og.open(address)
    receipt = g.apply(
        [
            InsertNode("Person", {"name": "Ada", "email": "ada@example.org", "age": 36, "role": "engineer"}),
            InsertNode("Person", {"name": "Bob", "email": "bob@example.org", "age": 41}),
            InsertNode("Company", {"name": "Analytical Engines", "founded": "1837-12-01"}),
            InsertEdge("WorksAt", "Ada", "Analytical Engines", {"since": "1842-01-01"}),
            InsertEdge("Knows", "Ada", "Bob", {"strength": 0.9}),
        ],
        actor="ada",
        message="first people",
    )
    say(f"  commit {receipt.commit_id}: {dict(receipt.counts)}")
    check("nodes and edges of four types became visible together", g.commits(limit=1)[0].kind == "mutate")


def break_rules(address: str) -> None:
    """A change that breaks rules of the schema is refused whole"""
    g = og.open(address)
    before = g.refresh()
    bad: list[tuple[str, list[Statement]]] = [
        ("age out of range", [InsertNode("Person", {"name": "Methuselah", "age": 969})]),
        ("email taken", [InsertNode("Person", {"name": "Eve", "email": "ada@example.org"})]),
        ("edge to nobody", [InsertEdge("Knows", "Ada", "Nobody", {})]),
        ("two employers", [InsertNode("Company", {"name": "B"}), InsertEdge("WorksAt", "Ada", "B", {})]),
    ]
    for mistake, statements in bad:
        try:
            g.apply(statements)
        except ConstraintViolation as error:
            check(f"{mistake}: {escape(error.violations[0]['message'])}", True)
        else:
            check(f"{mistake} is refused", False)
    check("nothing was written by any of them", g.refresh() == before and "B" not in names(g, "Company"))


def load_on_spark(address: str) -> None:
    """A file of a hundred thousand records, loaded on Spark as one commit"""
    g = og.open(address)
    source = Path(f"{address}.ndjson")
    count = town.write(source)
    report = g.load(source, engine="spark", actor="loader", message="the whole town", progress=sys.stderr.isatty())
    say(f"  commit {report.commit_id}: {report.loaded} rows of {len(report.counts)} types")
    check("every record is there, in one commit", report.loaded == count and g.commits(1)[0].kind == "load")
    bad = Path(f"{address}-bad.ndjson")
    lines = [line for line in source.read_text().splitlines() if '"Person"' in line][:5_000]
    lines[4_321] = '{"edge": "Knows", "from": "person 00001", "to": "nobody at all"}'
    bad.write_text("\n".join(lines) + "\n")
    before = g.refresh()
    try:
        g.load(bad, engine="spark", progress=False)
    except LoadRejected as error:
        first = error.details["rejects"][0]
        check(f"one bad record stops a load: {Path(first['file']).name}, line {first['line']}: {first['code']}", True)
    else:
        check("a bad record is refused", False)
    check("and nothing of that file was loaded", g.refresh() == before)
    rows = g.query(
        'query q() { match { $p worksAt $c  $p.role = "engineer" } '
        "return { $c.name as company, count($p) as engineers } order { engineers desc, company } limit 3 }"
    )
    for row in rows.rows:
        say(f"    {row['company']}: {row['engineers']} engineers")
    check("the town can be asked about at once", len(rows.rows) == 3)


def branch_and_merge(address: str) -> None:
    """A branch is reviewed and merged"""
    g = og.open(address)
    omnigraph("branch", "create", "review/raise", address)
    review = g.on_branch("review/raise")
    review.mutate('query q() { update Person set { age: 99 } where name = "person 00007" }', actor="reviewer")
    g.mutate('query q() { update Person set { age: 98 } where name = "person 00008" }', actor="somebody else")
    omnigraph("diff", "main", "review/raise", address, "--stat")
    omnigraph("branch", "merge", "review/raise", address, "--delete-branch", "--actor", "reviewer")
    ages = {
        row["name"]: row["age"]
        for row in g.query(
            "query q() { match { $p: Person  $p.age > 97 } return { $p.name as name, $p.age as age } }"
        ).rows
    }
    check("both changes are on main", ages == {"person 00007": 99, "person 00008": 98})
    check("the branch is gone", g.branch.list() == ["main"])


def export_again(address: str) -> None:
    """Export, and a new graph from it: the same content"""
    g = og.open(address)
    out = Path(f"{address}-export.ndjson")
    omnigraph("export", address, "--output", str(out))
    copy = og.init(f"{address}-copy", SCHEMA)
    copy.load(out, engine="spark", progress=False)
    check("export, init, load is the identity on content", contents(g) == contents(copy))


def serve(address: str) -> None:
    """The same graph over HTTP"""
    words = [str(Path(sys.executable).with_name("omnigraph")), "serve", address, "--port", "0"]
    console.print(f"  [bold]$ omnigraph serve {escape(address)} --port 0[/bold]", soft_wrap=True)
    server = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        remote = og.connect(address_of(server))
        rows = remote.query("query q() { match { $p: Person } return { count($p) as people } }")
        check(f"a client asked it: {rows.rows[0]['people']} people", rows.rows[0]["people"] > town.PEOPLE)
        remote.mutate('query q() { insert Person { name: "Remote" } }')
        check("what it wrote is there for everybody", "Remote" in names(og.open(address)))
    finally:
        server.terminate()
        server.communicate(timeout=30)


def branch_and_travel(address: str) -> None:
    """Branches, time travel and schema change"""
    g = og.open(address)
    before = g.refresh()
    omnigraph("branch", "create", "review/promotion", address)
    review = g.on_branch("review/promotion")
    review.apply([Update("Person", {"age": 37, "role": "scientist"}, Compare("name", "=", "Ada"))], actor="reviewer")
    review.apply([Delete("Person", Compare("name", "=", "Bob"))], actor="reviewer")
    check(
        "the branch lost Bob, and the edge to him went along",
        "Bob" not in names(review) and review.table("Knows").count() == g.table("Knows").count() - 1,
    )
    check("main still has him", "Bob" in names(g))
    review.schema.apply(SCHEMA.read_text().replace("age: I32?", "age: I64?\n    born: Date?"), actor="reviewer")
    check("the branch has a new property and a wider one", "born" in review.table("Person").to_arrow().column_names)
    then = review.at(before).table("Person").to_arrow(where=Compare("name", "=", "Ada"))
    check("an old commit is read as it was", then["age"].to_pylist() == [36] and "born" not in then.column_names)
    try:
        g.apply([InsertNode("Person", {"name": "Late"})], if_commit=before)
        g.apply([InsertNode("Person", {"name": "Later"})], if_commit=before)
    except PreconditionFailed as error:
        check(f"if_commit holds: {escape(error.message)}", True)
    omnigraph("branch", "list", address)


def write_at_once(address: str) -> None:
    """Four processes write one branch at once, without a server or a lock"""
    g = og.open(address)
    before = names(g)
    writers = [start_writer("steady", address, f"writer{n}", ROWS_PER_WRITER) for n in range(WRITERS)]
    started = release(writers)
    acknowledged = {line for writer in writers for line in writer.communicate()[0].split()}
    seconds = time.monotonic() - started
    expected = WRITERS * ROWS_PER_WRITER
    check(f"{WRITERS} processes landed {expected} rows in {seconds:.1f} s", len(acknowledged) == expected)
    check("every acknowledged row is there, and no other", names(g) - before == acknowledged)
    commits = g.commits(limit=None)
    sequence = [commit.seq for commit in commits]
    check(f"one linear history of {len(commits)} commits", sequence == list(range(len(commits) - 1, -1, -1)))
    actors = [commit.actor for commit in commits if commit.actor and commit.actor.startswith("writer")]
    turns = sum(actor != next_actor for actor, next_actor in pairwise(actors)) + 1
    check(f"their commits are mixed: the author changed {turns} times", turns > WRITERS)


def kill_writers(address: str) -> None:
    """kill -9 in the middle of writing; nothing needs repair"""
    g = og.open(address)
    victim = start_writer("steady", address, "victim", 10_000)
    release([victim])
    assert victim.stdout is not None
    acknowledged = {victim.stdout.readline().strip() for _ in range(20)}
    victim.kill()
    acknowledged |= {line for line in victim.communicate()[0].split("\n")[:-1] if line}
    check(f"a busy writer was killed after {len(acknowledged)} commits", victim.returncode == -signal.SIGKILL)
    landed = {name for name in names(g) if name.startswith("victim")}
    check("all it had acknowledged is there", acknowledged <= landed)
    check("at most the one commit in flight is there besides", len(landed - acknowledged) <= 1)
    before = g.refresh()
    doomed = start_writer("doomed", address, "ghost", 0)
    doomed.wait()
    check("another died with two tables staged and no record written", doomed.returncode == -signal.SIGKILL)
    check("nobody sees its half", g.refresh() == before and "ghost" not in names(g))
    g.apply([InsertNode("Person", {"name": "ghost"}), InsertEdge("Knows", "ghost", "Ada", {})], actor="survivor")
    check("the next writer simply goes on", "ghost" in names(og.open(address)))


def count_requests(address: str) -> None:
    """What one write costs, at any depth of history"""
    table = Table("depth of history", "one-row insert", "requests", "bytes of the record", box=None, padding=(0, 2))
    shapes = {"inline": og.Config(fold="never"), "staged": og.Config(fold="never", inline_share=0)}
    is_constant = True
    for shape, config in shapes.items():
        root = f"{address}-{shape}"
        og.init(root, SCHEMA)
        metered_graph = MeteredGraph(root, config)
        metered_graph.insert("first")  # creates the table, which costs more than the inserts to be shown
        costs = []
        for depth in DEPTHS:
            deepen(root, depth)
            costs.append(metered_graph.insert(f"at {depth}"))
            requests = costs[-1].describe().partition("(")[2].rstrip(")")
            table.add_row(str(depth), f"{shape}: {requests}", str(costs[-1].requests), str(costs[-1].sent_bytes))
        is_constant = is_constant and len({cost.describe() for cost in costs}) == 1
    console.print(table)
    check("the same requests at every depth", is_constant)


def show_history(address: str) -> None:
    """The history, as anybody can read it"""
    omnigraph("commit", "list", address, "--filter", "actor=ada")
    omnigraph("commit", "list", address, "--limit", "3", "--format", "csv")
    omnigraph("snapshot", address)
    omnigraph("version")


def contents(g: Graph) -> dict[str, list[str]]:
    """Returns all rows of all types without their ids, since the ids of edges are generated."""
    rows_by_table = {}
    for type_def in g.schema.catalog.types:
        rows = g.table(type_def.name).to_arrow().to_pylist()
        rows_by_table[type_def.name] = sorted(
            str({name: value for name, value in row.items() if name != "id"}) for row in rows
        )
    return rows_by_table


# --- helpers --------------------------------------------------------------------------------------------------------


def start_writer(role: str, address: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "writers.py"), role, address, name, str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def release(writers: Sequence[subprocess.Popen[str]]) -> float:
    """Lets all writers start once each has opened the graph. Returns the time of the start."""
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    return time.monotonic()


def address_of(server: subprocess.Popen[str]) -> str:
    """Reads the address of a server from its log."""
    assert server.stderr is not None
    for line in server.stderr:
        log_entry = json.loads(line)
        if "url" in log_entry:
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return f"{log_entry['url']}/graphs/{log_entry['graphs'][0]}"
    raise SystemExit("the server did not start")


class MeteredGraph:
    """A graph that counts all its storage requests, including those of Lance."""

    def __init__(self, address: str, config: og.Config) -> None:
        self._backend = make_backend(address, config=config, wrap=self._wrap)
        runtime = GraphRuntime.open(self._backend, read_only=False)
        self._graph = Graph(runtime, runtime.branch("main"))

    def _wrap(self, store: Store) -> Store:
        self._meter = MeteredStore(store)
        return self._meter

    def insert(self, name: str) -> Measurement:
        self._graph.refresh()
        before = self._backend.tables.io_stats()
        with self._meter.measure("insert") as usage:
            receipt = self._graph.apply([InsertNode("Person", {"name": name})])
        assert receipt.counts["inserted"] == 1, "a refused write is cheap"
        after = self._backend.tables.io_stats()
        usage.add_lance(after.read_iops - before.read_iops, after.write_iops - before.write_iops)
        return usage


def deepen(address: str, depth: int) -> None:
    """Commits the same row until the newest commit has the number `depth`."""
    g = og.open(address, config=og.Config(fold="never", fsync=False))
    for _ in range(int(g.refresh().rpartition(".")[2]), depth):
        g.apply([InsertNode("Company", {"name": "Busy"})])


STORY: tuple[Callable[[str], None], ...] = (
    create,
    write_atomically,
    break_rules,
    load_on_spark,
    branch_and_merge,
    export_again,
    serve,
    branch_and_travel,
    write_at_once,
    kill_writers,
    count_requests,
    show_history,
)


def main() -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omnigraph-demo-") as folder:
        address = str(Path(folder) / "people")
        for number, step in enumerate(STORY, start=1):
            console.print()
            console.rule(f"[bold cyan]{number}. {step.__doc__}", align="left")
            step(address)
    console.print(f"\n[bold green]All claims hold.[/bold green] {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
