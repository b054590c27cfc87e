"""Run the demo and keep what it prints as a page of the documentation: `make cast`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "demo-cast.md"
_FOLDER = re.compile(r"\S*omnigraph-demo-[^/\s]+/")
_TOOK = re.compile(r"(All claims hold\.) [\d.]+ s")
_HEAD = """# The demo, as it prints

What `make demo` shows, word for word; ids, times and seconds are those of one run. Every line with a ✓ was checked
before it was printed. This page is made by `make cast`, which runs the demo and leaves out what only tells of the
machine: the names of the folders it ran in, and how long all of it took.

```text
"""


def page_of(printed: str) -> str:
    """The page. Folders are named relative to where the demo ran, and lines do not end in blanks."""
    plain = _TOOK.sub(r"\1", _FOLDER.sub("", printed.replace(f"{ROOT}/", "")))
    lines = [line.rstrip() for line in plain.strip("\n").splitlines()]
    return _HEAD + "\n".join(lines) + "\n```\n"


def main() -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "demo.demo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if completed.returncode:
        sys.stderr.write(completed.stdout[-2000:] + completed.stderr)
        raise SystemExit(completed.returncode)
    PAGE.write_text(page_of(completed.stdout), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(completed.stdout.splitlines())} lines")


if __name__ == "__main__":
    main()
