"""The schema and the files of the golden corpus."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.query.language.bind import bind_params
from omnigraph.query.language.check import check_query
from omnigraph.query.language.lint import lint
from omnigraph.query.language.parse import parse_queries
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from tests.query.language.show_checked import show

GOLDEN = Path(__file__).parent / "golden"
UPDATING = os.environ.get("OMNIGRAPH_GOLDEN") == "update"
_SEPARATOR = "\n=====\n"
_VALUES = "// values: "


@cache
def catalog() -> Catalog:
    """One token for all identities: `node.person-t`, `name_t`. Unique, because names are, and steady under edits."""
    return compile_schema((GOLDEN / "schema.pg").read_text(encoding="utf-8"), mint=lambda: "t")


@dataclass(frozen=True)
class LanguageCase:
    """A query and what comes of it. A line `// values: {…}` gives parameters to bind."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.stem

    @property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8").split(_SEPARATOR)[0] + "\n"

    @property
    def expected(self) -> str:
        return self.path.read_text(encoding="utf-8").split(_SEPARATOR)[1]

    @property
    def values(self) -> dict[str, Any] | None:
        lines = (line for line in self.source.splitlines() if line.startswith(_VALUES))
        line = next(lines, None)
        return None if line is None else dict(json.loads(line.removeprefix(_VALUES)))

    def settle(self, actual: str) -> None:
        """Compare with the file, or write it when OMNIGRAPH_GOLDEN=update."""
        if UPDATING:
            self.path.write_text(self.source.rstrip("\n") + _SEPARATOR + actual, encoding="utf-8")
        assert actual == self.expected


def cases(folder: str) -> list[LanguageCase]:
    return [LanguageCase(path) for path in sorted((GOLDEN / folder).glob("*.gq"))]


def render_accepted(case: LanguageCase) -> str:
    """The printed trees of all queries of the case, and its bound parameters."""
    text = ""
    for query in parse_queries(case.source, f"{case.id}.gq"):
        checked = check_query(query, catalog())
        text += show(checked)
        if case.values is not None:
            bound = bind_params(checked, case.values)
            text += "".join(f"  bound {name} = {value!r}\n" for name, value in sorted(bound.items()))
    return text


def render_refused(case: LanguageCase) -> str:
    """The error of the case, or what was wrongly accepted."""
    try:
        return "accepted\n" + render_accepted(case)
    except InvalidInput as error:
        return f"{type(error).__name__} {error.code}\n{error}\n"


def render_warned(case: LanguageCase) -> str:
    """The report of lint as people see it, and as JSON."""
    report = lint(case.source, catalog(), f"{case.id}.gq")
    return report.render() + "\n" + json.dumps(report.to_json()["queries"], indent=1, ensure_ascii=False) + "\n"
