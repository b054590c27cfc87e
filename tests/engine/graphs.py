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
    "Folder": [{"path": "/"}, {"path": "/home"}, {"path": "/home/ada"}, {"path": "/tmp"}],
    "File": [{"path": "/home/ada/notes", "size": 12}, {"path": "/tmp/x", "size": 2**64 - 1}],
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
        {"id": "c1", "from": "/", "to": "/home"},
        {"id": "c2", "from": "/home", "to": "/home/ada"},
        {"id": "c3", "from": "/", "to": "/tmp"},
    ],
    "In": [
        {"id": "i1", "from": "/home/ada/notes", "to": "/home/ada"},
        {"id": "i2", "from": "/tmp/x", "to": "/tmp"},
    ],
    "edge:Seat": [{"id": "t1", "from": "Ada", "to": "e1", "code": "1a"}],
    "Is": [{"id": "s1", "from": "Ada", "to": "Ada"}],
    "Partners": [{"id": "p1", "from": "Acme", "to": "Bolt"}, {"id": "p2", "from": "Bolt", "to": "Acme"}],
}
