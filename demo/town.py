"""A town of people and companies as NDJSON records, the same in every run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PEOPLE = 20_000
COMPANIES = 200
FRIENDS = 3
ROLES = ("engineer", "scientist", "writer")


def records() -> Iterator[dict[str, Any]]:
    """Yields nodes and edges in mixed order."""
    chance = random.Random(1842)
    for number in range(COMPANIES):
        yield {"type": "Company", "data": {"name": f"company {number:03d}", "founded": f"{1800 + number}-01-01"}}
    for number in range(PEOPLE):
        name = f"person {number:05d}"
        data = {"name": name, "email": f"p{number}@example.org", "age": 18 + number % 70, "role": ROLES[number % 3]}
        yield {"type": "Person", "data": data}
        yield {"edge": "WorksAt", "from": name, "to": f"company {number % COMPANIES:03d}"}
        for friend in sorted(chance.sample(range(PEOPLE), FRIENDS)):
            strength = {"strength": round(chance.random(), 3)}
            yield {"edge": "Knows", "from": name, "to": f"person {friend:05d}", "data": strength}


def write(path: Path) -> int:
    """Writes all records to a file and returns their number."""
    lines = [json.dumps(record) for record in records()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines)
