"""The oracle: is every record of every stream its operations applied serially to the record before, and was every
answer that anybody got true?

It reads a finished graph and the diaries of all workers. Table versions are read once each and overlays are laid over
them in plain Python; every few records the engine's own views are compared with that.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.commit.footprint import hash_claim, tuple_key
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.idempotency import OPS_TYPE
from omnigraph.log.commit_record import NON_LOGICAL, CommitRecord, Stub
from omnigraph.log.overlay import DEL, RID
from omnigraph.log.snapshot import Snapshot
from omnigraph.schema.catalog import TypeDef
from tests.oracle import model
from tests.oracle.model import KINDS, Refused, Row, State
from tests.oracle.structure import chain_violations, entries_of, pin_violations, stream_ids

_VIEW_EVERY = 9
Ops = dict[str, tuple[str, int]]
Line = Mapping[str, Any]


@dataclass
class Diaries:
    """What all workers wrote down, by the tag of the operation."""

    begun: dict[str, Line] = field(default_factory=dict)
    ended: dict[str, Line] = field(default_factory=dict)
    others: list[Line] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Diaries:
        diaries = cls()
        for path in sorted(folder.iterdir()):
            for text in path.read_text().splitlines():
                line = json.loads(text)
                if line["what"] in ("begin", "end"):
                    (diaries.begun if line["what"] == "begin" else diaries.ended)[line["tag"]] = line
                else:
                    diaries.others.append(line)
        return diaries


@dataclass
class Verdict:
    """What is wrong, in words, and how much of everything there was."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        counts_text = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return "\n".join([counts_text, *self.violations[:40]])


def judge(runtime: GraphRuntime, diaries: Diaries) -> Verdict:
    return _Judge(runtime, diaries).verdict()


class _Judge:
    def __init__(self, runtime: GraphRuntime, diaries: Diaries) -> None:
        self._runtime = runtime
        self._diaries = diaries
        self._reader = _Reader(runtime)
        self._verdict = Verdict()
        self._records: dict[str, list[CommitRecord]] = {}
        self._states: dict[tuple[str, int], State] = {}
        self._ops: dict[tuple[str, int], Ops] = {}
        self._places: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)

    def verdict(self) -> Verdict:
        for stream in stream_ids(self._runtime):
            entries = entries_of(self._runtime, stream)
            assert not any(isinstance(entry, Stub) for entry in entries)
            self._records[stream] = [entry for entry in entries if isinstance(entry, CommitRecord)]
        for stream in sorted(self._records, key=lambda stream_id: self._records[stream_id][0].header.gen):
            self._judge_stream(stream)
        self._judge_op_ids()
        for tag, beginning in self._diaries.begun.items():
            self._verdict.violations += self._judge_answer(tag, beginning, self._diaries.ended.get(tag))
        for line in self._diaries.others:
            self._verdict.violations += self._judge_other(line)
        return self._verdict

    # --- every record is what its operations make of the one before ---------------------------------------------

    def _judge_stream(self, stream: str) -> None:
        previous: CommitRecord | None = None
        for record in self._records[stream]:
            state, ops = self._reader.state(record), self._reader.ops(record)
            self._states[stream, record.seq], self._ops[stream, record.seq] = state, ops
            self._count(record)
            say = [*self._reader.damage]
            self._reader.damage.clear()
            if previous is not None:
                say += [*chain_violations(previous, record), *pin_violations(self._runtime, previous, record)]
                say += _write_set_violations(self._reader.types(record), previous, record, *self._both(previous, state))
                say += self._exclusive_violations(previous, record)
            say += self._serial_violations(previous, record, state, ops)
            say += self._rule_violations(previous, record, state)
            if record.seq % _VIEW_EVERY == 0 or record is self._records[stream][-1]:
                say += self._reader.view_violations(record, state)
            self._verdict.violations += [f"{record.commit_id} ({record.kind}): {text}" for text in say]
            previous = record

    def _both(self, previous: CommitRecord, state: State) -> tuple[State, State]:
        return self._states[previous.stream, previous.seq], state

    def _serial_violations(
        self, previous: CommitRecord | None, record: CommitRecord, state: State, ops: Ops
    ) -> Iterator[str]:
        if record.kind == "init":
            before, before_ops = model.empty(), Ops()
        elif record.kind == "fork":
            [source] = record.header.parents
            before, before_ops = self._states[source.stream, source.seq], self._ops[source.stream, source.seq]
        else:
            assert previous is not None
            before = self._states[previous.stream, previous.seq]
            before_ops = self._ops[previous.stream, previous.seq]
        expected, expected_ops = before, dict(before_ops)
        if record.kind == "mutate":
            for member in record.members:
                self._places[member.actor or ""].append((record.stream, record.seq))
                if member.client_key is not None:
                    expected_ops[f"{record.stream}:{member.client_key}"] = (member.op_id, record.seq)
                response = self._diaries.begun.get(member.actor or "")
                if response is None or response["stream"] != record.stream:
                    yield f"{member.actor} never began here"
                    return
                try:
                    applied = model.apply(expected, response["operation"])
                except Refused as refused:
                    yield f"{member.actor} landed, but serially its answer is {refused.answer}"
                    return
                if applied.counts != dict(member.counts):
                    yield f"{member.actor} counts {dict(member.counts)}, serially {applied.counts}"
                expected = _with_minted_ids(applied, state)
        yield from _differences(expected, state)
        if expected_ops != ops:
            yield f"_ops has {_describe_difference(expected_ops, ops)}"

    def _rule_violations(self, previous: CommitRecord | None, record: CommitRecord, state: State) -> list[str]:
        """Broken constraints, told where they begin."""
        before = set(model.violations(self._states[previous.stream, previous.seq])) if previous else set()
        return [text for text in model.violations(state) if text not in before]

    def _exclusive_violations(self, previous: CommitRecord, record: CommitRecord) -> Iterator[str]:
        """While somebody holds the branch nobody else writes (H30)."""
        if previous.epoch.holder is None or record.kind != "mutate":
            return
        for member in record.members:
            response = self._diaries.begun.get(member.actor or "", {})
            if response.get("holder") != previous.epoch.holder:
                yield f"{member.actor} wrote while another writer held the branch"

    def _count(self, record: CommitRecord) -> None:
        counts = self._verdict.counts
        counts["records"] += 1
        counts[record.kind] += 1
        counts["staged"] += record.kind == "mutate" and any(touched.staged for touched in record.touched.values())
        counts["groups"] += len(record.members) > 1

    # --- every answer was true -----------------------------------------------------------------------------------

    def _judge_op_ids(self) -> None:
        """No operation lands twice, whatever it was told."""
        counter = Counter(
            member.op_id
            for stream_records in self._records.values()
            for record in stream_records
            for member in record.members
        )
        self._verdict.violations += [f"operation {op_id} landed {n} times" for op_id, n in counter.items() if n > 1]

    def _judge_answer(self, tag: str, line: Line, ended: Line | None) -> list[str]:
        places = self._places.get(tag, [])
        word = ended["answer"] if ended else "none"
        self._verdict.counts[f"answer {word}"] += 1
        if len(places) > 1:
            return [f"{tag} landed {len(places)} times: {places}"]
        if word in ("none", "unknown"):
            self._verdict.counts["landed unseen"] += len(places)
            return []
        assert ended is not None
        if word in ("landed", "replayed"):
            return [f"{tag}: {text}" for text in self._positive_violations(line, ended, places)]
        if places:
            return [f"{tag} was told {word} and landed at {places}: {ended.get('text')}"]
        if self._is_right(word, line, ended):
            return []
        versions = f"{line['low']}..{ended['high']}"
        return [f"{tag} was told {word}, which no version of {versions} bears out: {ended.get('text')}"]

    def _positive_violations(self, line: Line, ended: Line, places: Sequence[tuple[str, int]]) -> Iterator[str]:
        stream, _, seq = ended["commit_id"].rpartition(".")
        position = (stream, int(seq))
        if ended["answer"] == "replayed":
            key = line["options"]["client_key"]
            members = self._records[stream][position[1]].members if stream == line["stream"] else ()
            if key not in [record_member.client_key for record_member in members]:
                yield f"replayed {ended['commit_id']}, which has no member with the key {key}"
            if places and places != [position]:
                yield f"replayed {ended['commit_id']} and landed at {places}"
            return
        if places != [position]:
            yield f"acknowledged at {ended['commit_id']}, found at {places}"
            return
        if not line["low"] < position[1] <= ended["high"]:
            yield f"acknowledged at {position[1]}, outside {line['low']}..{ended['high']}"
        member = next(
            record_member
            for record_member in self._records[stream][position[1]].members
            if record_member.actor == line["tag"]
        )
        if dict(member.counts) != ended["counts"]:
            yield f"told {ended['counts']}, recorded {dict(member.counts)}"
        response = line["options"].get("if_commit")
        if response and not self._holds(stream, int(response.rpartition(".")[2]), position[1] - 1):
            yield f"landed at {position[1]} though it was bound to {response}"

    def _is_right(self, word: str, line: Line, ended: Line) -> bool:
        """Whether some version between the call's begin and end bears the answer out."""
        stream, versions = line["stream"], range(line["low"], ended["high"] + 1)
        records = self._records[stream]
        if word in ("contention", "unavailable", "read_set"):
            return True
        if word == "closed":
            return records[-1].kind == "close" and records[-1].seq <= ended["high"]
        if word == "fenced":
            return any(record.epoch.holder != line["holder"] for record in records[: ended["high"] + 1])
        if word == "precondition":
            bound_seq = int(line["options"]["if_commit"].rpartition(".")[2])
            return any(not self._holds(stream, bound_seq, seq) for seq in versions)
        return any(_outcome(self._states[stream, seq], line["operation"]) == word for seq in versions)

    def _holds(self, stream: str, bound_seq: int, seq: int) -> bool:
        """Whether nothing logical happened after `named` as of `seq`."""
        return (
            all(record.kind in NON_LOGICAL for record in self._records[stream][bound_seq + 1 : seq + 1])
            and bound_seq <= seq
        )

    def _judge_other(self, line: Line) -> Iterator[str]:
        self._verdict.counts[line["what"]] += 1
        if line["what"] == "deleted" and self._records[line["stream"]][-1].kind != "close":
            yield f"{line['stream']} was deleted and is not closed"
        if line["what"] == "read":
            stream, _, seq = line["commit_id"].rpartition(".")
            if int(seq) < line["low"]:
                yield f"a read of {line['commit_id']} though {line['low']} was there when it began"
            if line["digest"] != model.digest(self._states[stream, int(seq)]):
                yield f"a read of {line['commit_id']} saw something else"


class _Reader:
    """States of records, without the engine's views."""

    def __init__(self, runtime: GraphRuntime) -> None:
        self._runtime = runtime
        self._pinned: dict[tuple[str, str], dict[str, Row]] = {}
        self.damage: list[str] = []

    def types(self, record: CommitRecord) -> dict[str, TypeDef]:
        return {type_def.name: type_def for type_def in self._runtime.catalogs.get(record.schema).types}

    def state(self, record: CommitRecord) -> State:
        state: State = {}
        for name, type_def in self.types(record).items():
            state[name] = {
                row_id: _with_user_names(type_def, row) for row_id, row in self._rows(record, type_def.id).items()
            }
        return state

    def ops(self, record: CommitRecord) -> Ops:
        return {row_id: (row["op_id"], row["seq"]) for row_id, row in self._rows(record, OPS_TYPE.id).items()}

    def view_violations(self, record: CommitRecord, state: State) -> Iterator[str]:
        """What the engine's own views show of the record."""
        snapshot = Snapshot(self._runtime.backend, record, self._runtime.catalogs.get(record.schema))
        for name, type_def in self.types(record).items():
            rows = snapshot.view(type_def).scan().to_pylist()
            visible = {row["id"]: _with_user_names(type_def, row) for row in rows}
            if len(visible) != len(rows) or visible != state[name]:
                yield f"the view of {name} shows {_describe_difference(state[name], visible)}"

    def _rows(self, record: CommitRecord, table: str) -> dict[str, Row]:
        pin, entries = record.pins.get(table), record.overlay.get(table)
        rows = dict(self._version(table, pin.version)) if pin and pin.version else {}
        for entry in entries.table.to_pylist() if entries else ():
            rows.pop(entry["id"], None)
            if not entry.pop(DEL):
                entry.pop(RID)
                rows[entry["id"]] = entry
        if len(rows) != (pin.rows if pin else 0):
            self.damage.append(f"{table} says {pin.rows if pin else 0} rows and has {len(rows)}")
        return rows

    def _version(self, table: str, version: str) -> dict[str, Row]:
        if (table, version) not in self._pinned:
            rows = self._runtime.backend.tables.open(table, version).scan().to_pylist()
            by_id = {row["id"]: row for row in rows}
            if len(by_id) != len(rows):
                self.damage.append(f"version {version} of {table} holds an id twice")
            self._pinned[table, version] = by_id
        return self._pinned[table, version]


def _with_user_names(type_def: TypeDef, row: Row) -> Row:
    """A row under the names that users know."""
    ends = {"from": row["src"], "to": row["dst"]} if type_def.kind == "edge" else {}
    return {"id": row["id"], **ends, **{prop.name: row.get(prop.id) for prop in type_def.properties}}


def _with_minted_ids(applied: model.Applied, actual: State) -> State:
    """The model's placeholder ids replaced by those that the engine chose for the same rows."""
    state = {name: dict(rows) for name, rows in applied.state.items()}
    for placeholder, name in applied.minted.items():
        row = state[name].pop(placeholder, None)
        if row is None:
            continue
        candidates = [
            candidate
            for candidate in actual[name].values()
            if candidate["tag"] == row["tag"] and candidate["id"] not in state[name]
        ]
        row_id = candidates[0]["id"] if len(candidates) == 1 else placeholder
        state[name][row_id] = {**row, "id": row_id}
    return state


def _outcome(state: State, operation: Sequence[Line]) -> str:
    try:
        model.apply(state, operation)
    except Refused as refused:
        return refused.answer
    return "landed"


def _differences(expected: State, actual: State) -> Iterator[str]:
    for name in KINDS:
        if expected[name] != actual[name]:
            yield f"{name} differs from the serial result: {_describe_difference(expected[name], actual[name])}"


def _describe_difference(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str:
    ids = [row_id for row_id in {**expected, **actual} if expected.get(row_id) != actual.get(row_id)]
    return "; ".join(f"{row_id}: {expected.get(row_id)} became {actual.get(row_id)}" for row_id in ids[:4])


def _write_set_violations(
    types: Mapping[str, TypeDef], previous: CommitRecord, record: CommitRecord, before: State, after: State
) -> Iterator[str]:
    """Whatever a record changed is in its write set."""
    if record.kind in NON_LOGICAL:
        return
    exact, wild = set(record.writes.exact.tolist()), record.writes.wild
    for name in KINDS:
        for row_id in {**before[name], **after[name]}:
            old, new = before[name].get(row_id), after[name].get(row_id)
            for table, kind, key in _claims(types, name, row_id, old, new) if old != new else ():
                if hash_claim(table, kind, key) not in exact and not {f"{table}|*", f"{table}|{kind}|*"} & wild:
                    yield f"changed {name} {row_id} and does not say {kind}|{key}"


def _claims(
    types: Mapping[str, TypeDef], name: str, row_id: str, old: Row | None, new: Row | None
) -> Iterable[tuple[str, str, str]]:
    type_def, kind = types[name], KINDS[name]
    yield type_def.id, "row", row_id
    if kind.unique:
        columns = type_def.uniques[0]
        names = [type_def.column_name(column) for column in columns]
        values = [tuple(row[_end_name(part)] for part in names) if row else None for row in (old, new)]
        if values[0] != values[1]:
            yield from (
                (type_def.id, "uniq:" + ",".join(columns), tuple_key(value))
                for value in values
                if value and None not in value
            )
    if kind.ends is None:
        if new is None:
            yield type_def.id, "live", row_id
        return
    ends = [(row["from"], row["to"]) if row else None for row in (old, new)]
    for pair in ends if ends[0] != ends[1] else ():
        if pair is not None:
            yield types[kind.ends[0]].id, "inc", pair[0]
            yield types[kind.ends[1]].id, "inc", pair[1]
            if kind.low or kind.high is not None:
                yield type_def.id, "card", pair[0]


def _end_name(name: str) -> str:
    return {"src": "from", "dst": "to"}.get(name, name)
