"""The small graphs of the golden corpus: schema and content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
BIG = 2**53

Rows = Mapping[str, Sequence[Mapping[str, Any]]]

PEOPLE: Rows = {
    "Person": [
        {
            "name": "Ada",
            "age": 36,
            "karma": BIG,
            "visits": 7,
            "points": 2**64 - 1,
            "score": 0.1,
            "rating": 4.5,
            "born": "1815-12-10",
            "seen": "2026-02-28T23:59:59.999Z",
            "active": True,
            "role": "admin",
            "bio": "Wrote the first program, for an engine that was never built.",
            "tags": ["math", "engine"],
            "marks": [1, 2, 3],
            "days": ["2026-01-31"],
            "face": [1.0, 0.0, 0.0],
            "note": "countess",
            "in": "here",
            "limit": 10,
        },
        {
            "name": "Bob",
            "age": 41,
            "karma": BIG + 1,
            "visits": 2**32 - 1,
            "points": 2**63,
            "score": 2.5,
            "rating": -1.25,
            "born": "0001-01-01",
            "seen": "0001-01-01T00:00:00Z",
            "active": False,
            "role": "user",
            "bio": "Builds engines. The engine is never late!",
            "tags": [],
            "marks": [],
            "face": [0.0, 1.0, 0.0],
        },
        {
            "name": "Cleo",
            "age": 41,
            "karma": -(2**63),
            "rating": 0.0,
            "tags": ["math"],
            "role": "guest",
            "active": True,
        },
        {
            "name": "Dörte Ünal",
            "age": None,
            "karma": 2**63 - 1,
            "points": 0,
            "score": -2.5,
            "rating": 4.5,
            "born": "9999-12-31",
            "seen": "9999-12-31T23:59:59.999Z",
            "bio": "Über alles: 数学 und Straßen",
            "tags": ["数学", "math"],
            "marks": [5, BIG],
            "days": ["2026-01-31", "0001-01-01"],
            "face": [0.6, 0.8, 0.0],
            "role": "user",
        },
        {"name": "Eve'; drop table t0; --", "age": 20, "tags": ["x' or 1=1"], "bio": "the engine", "limit": -1},
        {"name": "", "age": 0, "tags": [""], "bio": "", "rating": 1e300, "face": [0.0, 0.0, 0.0], "in": ""},
    ],
    "Company": [
        {"name": "Acme", "city": "London", "founded": "1900-01-01", "logo": [1, 2, 3, 4]},
        {"name": "Bolt", "city": "Paris", "logo": [0, 0, 0, 1]},
        {"name": "Core", "city": "London"},
    ],
    "Event": [
        {"id": "e1", "title": "Opening", "at": "2026-01-31T12:00:00Z", "seats": 10},
        {"id": "e2", "title": "Closing night", "at": "2026-02-01T00:00:00Z", "seats": 3},
    ],
    "Seat": [
        {"row": 1, "place": "a", "price": 10.0},
        {"row": 1, "place": "b"},
        {"row": -2, "place": "a", "price": 12.5},
    ],
    "Folder": [{"path": "/"}, {"path": "/docs"}, {"path": "/docs/ada"}, {"path": "/tmp"}],
    "File": [{"path": "/docs/ada/notes", "size": 12}, {"path": "/tmp/x", "size": 2**64 - 1}],
    "Knows": [
        {"id": "k1", "from": "Ada", "to": "Bob", "since": "2020-01-01", "weight": 0.5, "note": "first engine"},
        {"id": "k2", "from": "Ada", "to": "Bob", "since": "2021-01-01", "weight": 0.25},
        {"id": "k3", "from": "Bob", "to": "Cleo", "weight": 1.0},
        {"id": "k4", "from": "Cleo", "to": "Ada", "since": "2019-05-05"},
        {"id": "k5", "from": "Cleo", "to": "Cleo", "weight": 0.75},
        {"id": "k6", "from": "Cleo", "to": "Dörte Ünal", "weight": 2.0, "note": "late engine"},
    ],
    "WorksAt": [
        {"id": "w1", "from": "Ada", "to": "Acme", "since": "2010-01-01", "title": "Analyst"},
        {"id": "w2", "from": "Bob", "to": "Acme", "since": "2012-06-01"},
        {"id": "w3", "from": "Bob", "to": "Bolt", "since": "2015-06-01", "title": "Engineer"},
        {"id": "w4", "from": "Dörte Ünal", "to": "Bolt", "since": "2012-06-01", "title": "Engineer"},
    ],
    "Attended": [{"id": "a1", "from": "Ada", "to": "e1"}, {"id": "a2", "from": "Bob", "to": "e1"}],
    "Contains": [
        {"id": "c1", "from": "/", "to": "/docs"},
        {"id": "c2", "from": "/docs", "to": "/docs/ada"},
        {"id": "c3", "from": "/", "to": "/tmp"},
    ],
    "In": [
        {"id": "i1", "from": "/docs/ada/notes", "to": "/docs/ada"},
        {"id": "i2", "from": "/tmp/x", "to": "/tmp"},
    ],
    "edge:Seat": [{"id": "t1", "from": "Ada", "to": "e1", "code": "1a"}],
    "Is": [{"id": "s1", "from": "Ada", "to": "Ada"}],
    "Partners": [{"id": "p1", "from": "Acme", "to": "Bolt"}, {"id": "p2", "from": "Bolt", "to": "Acme"}],
}

#: A loop, parallel edges, a circle, a node without edges, and a chain longer than the ceiling of open hops.
LOOPS: Rows = {
    "Node": [
        *(
            {"name": name, "weight": weight}
            for name, weight in (("a", 1), ("b", None), ("c", 3), ("d", 3), ("e", None))
        ),
        *({"name": f"x{number:02d}", "weight": number} for number in range(20)),
    ],
    "Link": [
        {"id": "aa", "from": "a", "to": "a", "n": 1},
        {"id": "ab1", "from": "a", "to": "b", "n": 2},
        {"id": "ab2", "from": "a", "to": "b", "n": 3},
        {"id": "bc", "from": "b", "to": "c"},
        {"id": "ca", "from": "c", "to": "a", "n": 5},
        {"id": "dd", "from": "d", "to": "d", "n": 6},
        *({"id": f"y{at:02d}", "from": f"x{at:02d}", "to": f"x{at + 1:02d}", "n": at} for at in range(19)),
    ],
    "Tag": [{"name": "red"}, {"name": "blue"}, {"name": "unused"}],
    "Has": [
        {"id": "h1", "from": "a", "to": "red"},
        {"id": "h2", "from": "b", "to": "red"},
        {"id": "h3", "from": "b", "to": "blue"},
        {"id": "h4", "from": "x00", "to": "blue"},
    ],
}

#: Texts: cases, accents, other scripts, punctuation, repeated and missing words.
TEXTS: Rows = {
    "Doc": [
        {
            "id": "d1",
            "title": "The quick brown fox",
            "body": "A quick brown fox jumps over the lazy dog",
            "near": [1, 0],
        },
        {"id": "d2", "title": "Brown, quick!", "body": "quick-brown; brown quick", "near": [0, 1]},
        {"id": "d3", "title": "ÉTÉ à Zürich", "body": "Straße STRASSE straße", "near": [1, 1]},
        {"id": "d4", "title": "数据库 graph", "body": None, "near": None},
        {"id": "d5", "title": "", "body": "", "near": [0, 0]},
        {"id": "d6", "title": "fox fox fox", "body": "up up and away", "near": [-1, 0]},
        {"id": "d7", "title": "x' OR '1'='1", "body": "foxes; boxes", "near": [2, 0]},
    ],
    "Cites": [
        {"id": "c1", "from": "d1", "to": "d2", "why": "same fox"},
        {"id": "c2", "from": "d1", "to": "d3", "why": None},
        {"id": "c3", "from": "d2", "to": "d6", "why": "other words"},
        {"id": "c4", "from": "d6", "to": "d1", "why": "the same quick fox"},
    ],
}

GRAPHS: Mapping[str, tuple[str, Rows]] = {
    "people": ("people.pg", PEOPLE),
    "loops": ("loops.pg", LOOPS),
    "empty": ("loops.pg", {}),
    "texts": ("texts.pg", TEXTS),
}
