"""The map of the source tells the truth: every function of a walk exists, every room stands in the picture."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import omnigraph

HOUSE = Path(__file__).parent.parent / "docs" / "internals" / "house.md"
SOURCE = Path(omnigraph.__file__).parent
WALKS = HOUSE.read_text().partition("## Walks")[2]
FUNCTIONS = re.findall(r"^\d+\. `([\w.]+)`", WALKS, re.MULTILINE)


def resolve(dotted: str) -> object:
    """The object that `room.module.Class.method` names: its longest prefix is a module, the rest attributes."""
    parts = dotted.split(".")
    for length in range(len(parts) - 1, 0, -1):
        path = SOURCE.joinpath(*parts[:length])
        if path.with_suffix(".py").exists() or path.joinpath("__init__.py").exists():
            target: object = importlib.import_module(".".join(["omnigraph", *parts[:length]]))
            for name in parts[length:]:
                target = getattr(target, name)
            return target
    raise AttributeError(f"no module of omnigraph begins {dotted}")


@pytest.mark.parametrize("walk", ["A write", "Mutate", "Query", "Load", "Merge"])
def test_the_page_has_the_walk(walk: str) -> None:
    assert re.search(rf"^### {walk}", WALKS, re.MULTILINE), f"house.md has no walk {walk!r}"


@pytest.mark.parametrize("dotted", sorted(set(FUNCTIONS)))
def test_walk_names_real_function(dotted: str) -> None:
    assert callable(resolve(dotted))


def test_walks_have_functions() -> None:
    assert len(FUNCTIONS) >= 30


def test_unknown_function_is_noticed() -> None:
    with pytest.raises(AttributeError):
        resolve("commit.publisher.Publisher.no_such_method")


@pytest.mark.parametrize("room", sorted(path.parent.name for path in SOURCE.glob("*/__init__.py")))
def test_every_room_is_in_the_picture_and_says_what_it_is_for(room: str) -> None:
    assert re.search(rf"\b{room}\b", HOUSE.read_text().partition("## Where does my change go?")[0])
    docstring = importlib.import_module(f"omnigraph.{room}").__doc__ or ""
    assert len(docstring.strip().splitlines()) >= 3, f"omnigraph/{room}/__init__.py does not say what the room is for"
