"""What the facade has and a server has not: refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from omnigraph.errors import Unsupported


def refuse_limits(limits: object) -> None:
    if limits is not None:
        raise refused("query(limits=…)", "The server sets the limits of queries")


def refuse_options(verb: str, given: Mapping[str, object], facade: Callable[..., object]) -> None:
    """Options that the facade has and a server has not; one that nobody has is a mistake in the call."""
    known = inspect.signature(facade).parameters
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}")
        if value != known[name].default:
            raise refused(f"{verb}({name}=…)", "The server decides that")


def missing(name: str, here: str, facade: type) -> Exception:
    if not name.startswith("_") and hasattr(facade, name):
        return refused(name, "Open the graph itself, or use the command line")
    return AttributeError(f"{here!r} object has no attribute {name!r}")


def refused(verb: str, advice: str) -> Unsupported:
    return Unsupported(f"`{verb}` is not possible over HTTP", code="not_over_http", advice=advice, verb=verb)
