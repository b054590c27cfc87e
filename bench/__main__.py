"""`python -m bench [PART...] [--quick] [--large]`: runs benchmarks, prints tables and writes the numbers as JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from bench import branches, imports, load, mutations, queries, server, upkeep, writes
from bench.report import Report, save

PARTS = {
    "writes": writes.run,
    "mutations": mutations.run,
    "queries": queries.run,
    "branches": branches.run,
    "upkeep": upkeep.run,
    "load": load.run,
    "server": server.run,
    "imports": imports.run,
}
RESULTS = Path(__file__).with_name("results")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="what to measure; everything by default")
    parser.add_argument("--quick", action="store_true", help="smaller shapes and fewer repetitions")
    parser.add_argument("--large", action="store_true", help="load: up to 20 million edges as well")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON files")
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for name in options.part or PARTS:
        report = Report(name, console)
        if name == "load":
            load.run(report, quick=options.quick, large=options.large)
        else:
            PARTS[name](report, quick=options.quick)
        console.print(f"[dim]{save(report, options.results)}[/dim]")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
