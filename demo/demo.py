"""Something real, end to end, on a temporary directory. Every claim that is printed has been checked first."""

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
from omnigraph.commit.graph_runtime import Site
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
    """Print what is shown, or stop the demo: a claim that does not hold is a bug."""
    if not holds:
        console.print(f"  [red]✗ {claim}[/red]")
        raise SystemExit(1)
    console.print(f"  [green]✓[/green] {claim}")


def omnigraph(*words: str) -> str:
    """Run the command line as a user would, show the command and what it prints."""
    console.print(f"  [bold]$ omnigraph {escape(' '.join(words))}[/bold]", soft_wrap=True)
    command = [str(Path(sys.executable).with_name("omnigraph")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        console.print(f"  {line}", markup=False, style="dim", soft_wrap=True)
    return done.stdout


def names(g: Graph, kind: str = "Person") -> set[str]:
    return set(g.table(kind).to_arrow(columns=["id"])["id"].to_pylist())


# --- the story ------------------------------------------------------------------------------------------------------


def create(place: str) -> None:
    """A graph is declared by a schema file"""
    console.print(Syntax(SCHEMA.read_text(), "java", background_color="default", line_range=(7, 15)))
    omnigraph("lint", str(SCHEMA.relative_to(Path.cwd()) if SCHEMA.is_relative_to(Path.cwd()) else SCHEMA))
    omnigraph("init", place, "--schema", str(SCHEMA))


def write_atomically(place: str) -> None:
    """One commit over four tables"""
    g = og.open(place)
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


def break_rules(place: str) -> None:
    """A change that breaks rules of the schema is refused whole"""
    g = og.open(place)
    before = g.refresh()
    bad: list[tuple[str, list[Statement]]] = [
        ("age out of range", [InsertNode("Person", {"name": "Methuselah", "age": 969})]),
        ("email taken", [InsertNode("Person", {"name": "Eve", "email": "ada@example.org"})]),
        ("edge to nobody", [InsertEdge("Knows", "Ada", "Nobody", {})]),
        ("two employers", [InsertNode("Company", {"name": "B"}), InsertEdge("WorksAt", "Ada", "B", {})]),
    ]
    for what, statements in bad:
        try:
            g.apply(statements)
        except ConstraintViolation as error:
            check(f"{what}: {escape(error.violations[0]['message'])}", True)
        else:
            check(f"{what} is refused", False)
    check("nothing was written by any of them", g.refresh() == before and "B" not in names(g, "Company"))


def load_on_spark(place: str) -> None:
    """A file of a hundred thousand records, loaded on Spark as one commit"""
    g = og.open(place)
    source = Path(f"{place}.ndjson")
    count = town.write(source)
    report = g.load(source, engine="spark", actor="loader", message="the whole town", progress=sys.stderr.isatty())
    say(f"  commit {report.commit_id}: {report.loaded} rows of {len(report.counts)} types")
    check("every record is there, in one commit", report.loaded == count and g.commits(1)[0].kind == "load")
    bad = Path(f"{place}-bad.ndjson")
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
    found = g.query(
        'query q() { match { $p worksAt $c  $p.role = "engineer" } '
        "return { $c.name as company, count($p) as engineers } order { engineers desc, company } limit 3 }"
    )
    for row in found.rows:
        say(f"    {row['company']}: {row['engineers']} engineers")
    check("the town can be asked about at once", len(found.rows) == 3)


def branch_and_merge(place: str) -> None:
    """A branch is reviewed and merged"""
    g = og.open(place)
    omnigraph("branch", "create", "review/raise", place)
    review = g.on_branch("review/raise")
    review.mutate('query q() { update Person set { age: 99 } where name = "person 00007" }', actor="reviewer")
    g.mutate('query q() { update Person set { age: 98 } where name = "person 00008" }', actor="somebody else")
    omnigraph("diff", "main", "review/raise", place, "--stat")
    omnigraph("branch", "merge", "review/raise", place, "--delete-branch", "--actor", "reviewer")
    ages = {
        row["name"]: row["age"]
        for row in g.query(
            "query q() { match { $p: Person  $p.age > 97 } return { $p.name as name, $p.age as age } }"
        ).rows
    }
    check("both changes are on main", ages == {"person 00007": 99, "person 00008": 98})
    check("the branch is gone", g.branch.list() == ["main"])


def export_again(place: str) -> None:
    """Export, and a new graph from it: the same content"""
    g = og.open(place)
    out = Path(f"{place}-export.ndjson")
    omnigraph("export", place, "--output", str(out))
    other = og.init(f"{place}-copy", SCHEMA)
    other.load(out, engine="spark", progress=False)
    check("export, init, load is the identity on content", contents(g) == contents(other))


def serve(place: str) -> None:
    """The same graph over HTTP"""
    words = [str(Path(sys.executable).with_name("omnigraph")), "serve", place, "--port", "0"]
    console.print(f"  [bold]$ omnigraph serve {escape(place)} --port 0[/bold]", soft_wrap=True)
    server = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        remote = og.connect(address_of(server))
        found = remote.query("query q() { match { $p: Person } return { count($p) as people } }")
        check(f"a client asked it: {found.rows[0]['people']} people", found.rows[0]["people"] > town.PEOPLE)
        remote.mutate('query q() { insert Person { name: "Remote" } }')
        check("what it wrote is there for everybody", "Remote" in names(og.open(place)))
    finally:
        server.terminate()
        server.communicate(timeout=30)


def branch_and_travel(place: str) -> None:
    """Branches, time travel and schema change"""
    g = og.open(place)
    before = g.refresh()
    omnigraph("branch", "create", "review/promotion", place)
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
    omnigraph("branch", "list", place)


def write_at_once(place: str) -> None:
    """Four processes write one branch at once, without a server or a lock"""
    g = og.open(place)
    before = names(g)
    writers = [child("steady", place, f"writer{n}", ROWS_PER_WRITER) for n in range(WRITERS)]
    started = start(writers)
    acknowledged = {line for one in writers for line in one.communicate()[0].split()}
    seconds = time.monotonic() - started
    wanted = WRITERS * ROWS_PER_WRITER
    check(f"{WRITERS} processes landed {wanted} rows in {seconds:.1f} s", len(acknowledged) == wanted)
    check("every acknowledged row is there, and no other", names(g) - before == acknowledged)
    commits = g.commits(limit=None)
    sequence = [one.seq for one in commits]
    check(f"one linear history of {len(commits)} commits", sequence == list(range(len(commits) - 1, -1, -1)))
    actors = [one.actor for one in commits if one.actor and one.actor.startswith("writer")]
    turns = sum(one != other for one, other in pairwise(actors)) + 1
    check(f"their commits are mixed: the author changed {turns} times", turns > WRITERS)


def kill_writers(place: str) -> None:
    """kill -9 in the middle of writing; nothing needs repair"""
    g = og.open(place)
    one = child("steady", place, "victim", 10_000)
    start([one])
    assert one.stdout is not None
    acknowledged = {one.stdout.readline().strip() for _ in range(20)}
    one.kill()
    acknowledged |= {line for line in one.communicate()[0].split("\n")[:-1] if line}
    check(f"a busy writer was killed after {len(acknowledged)} commits", one.returncode == -signal.SIGKILL)
    landed = {name for name in names(g) if name.startswith("victim")}
    check("all it had acknowledged is there", acknowledged <= landed)
    check("at most the one commit in flight is there besides", len(landed - acknowledged) <= 1)
    before = g.refresh()
    doomed = child("doomed", place, "ghost", 0)
    doomed.wait()
    check("another died with two tables staged and no record written", doomed.returncode == -signal.SIGKILL)
    check("nobody sees its half", g.refresh() == before and "ghost" not in names(g))
    g.apply([InsertNode("Person", {"name": "ghost"}), InsertEdge("Knows", "ghost", "Ada", {})], actor="survivor")
    check("the next writer simply goes on", "ghost" in names(og.open(place)))


def count_requests(place: str) -> None:
    """What one write costs, at any depth of history"""
    table = Table("depth of history", "one-row insert", "requests", "bytes of the record", box=None, padding=(0, 2))
    shapes = {"inline": og.Config(fold="never"), "staged": og.Config(fold="never", inline_share=0)}
    alike = True
    for shape, config in shapes.items():
        root = f"{place}-{shape}"
        og.init(root, SCHEMA)
        counted = Counted(root, config)
        counted.insert("first")  # the birth of the table, which costs more, is not what is shown
        found = []
        for depth in DEPTHS:
            deepen(root, depth)
            found.append(counted.insert(f"at {depth}"))
            requests = found[-1].describe().partition("(")[2].rstrip(")")
            table.add_row(str(depth), f"{shape}: {requests}", str(found[-1].requests), str(found[-1].sent_bytes))
        alike = alike and len({one.describe() for one in found}) == 1
    console.print(table)
    check("the same requests at every depth", alike)


def show_history(place: str) -> None:
    """The history, as anybody can read it"""
    omnigraph("commit", "list", place, "--filter", "actor=ada")
    omnigraph("commit", "list", place, "--limit", "3", "--format", "csv")
    omnigraph("snapshot", place)
    omnigraph("version")


def contents(g: Graph) -> dict[str, list[str]]:
    """All rows of all types, without the ids that were made up for edges."""
    found = {}
    for one in g.schema.catalog.types:
        rows = g.table(one.name).to_arrow().to_pylist()
        found[one.name] = sorted(str({name: value for name, value in row.items() if name != "id"}) for row in rows)
    return found


# --- helpers --------------------------------------------------------------------------------------------------------


def child(role: str, place: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "writers.py"), role, place, name, str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def start(writers: Sequence[subprocess.Popen[str]]) -> float:
    """Let all children go once each has opened the graph. The instant they went."""
    for one in writers:
        assert one.stdout is not None
        one.stdout.readline()
    for one in writers:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    return time.monotonic()


def address_of(server: subprocess.Popen[str]) -> str:
    """Where a server listens, as its log says."""
    assert server.stderr is not None
    for line in server.stderr:
        said = json.loads(line)
        if "url" in said:
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return f"{said['url']}/graphs/{said['graphs'][0]}"
    raise SystemExit("the server did not start")


class Counted:
    """A handle whose every request is counted, Lance's own included."""

    def __init__(self, place: str, config: og.Config) -> None:
        self._backend = make_backend(place, config=config, wrap=self._wrap)
        site = Site.open(self._backend, read_only=False)
        self._graph = Graph(site, site.branch("main"))

    def _wrap(self, store: Store) -> Store:
        self._meter = MeteredStore(store)
        return self._meter

    def insert(self, name: str) -> Measurement:
        self._graph.refresh()
        before = self._backend.tables.io_stats()
        with self._meter.measure("insert") as seen:
            receipt = self._graph.apply([InsertNode("Person", {"name": name})])
        assert receipt.counts["inserted"] == 1, "a refused write is cheap"
        after = self._backend.tables.io_stats()
        seen.add_lance(after.read_iops - before.read_iops, after.write_iops - before.write_iops)
        return seen


def deepen(place: str, depth: int) -> None:
    """Commits until the newest has the number `depth`, always of the same row."""
    g = og.open(place, config=og.Config(fold="never", fsync=False))
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
        place = str(Path(folder) / "people")
        for number, step in enumerate(STORY, start=1):
            console.print()
            console.rule(f"[bold cyan]{number}. {step.__doc__}", align="left")
            step(place)
    console.print(f"\n[bold green]All claims hold.[/bold green] {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
