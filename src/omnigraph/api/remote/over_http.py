"""How a method of the remote client gets the parameters of the facade, and how it refuses what a server cannot do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Concatenate, ParamSpec, TypeVar

from omnigraph.errors import Unsupported

P = ParamSpec("P")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class RemoteWriteOptions:
    """What every write verb takes; the actor is the token's and cannot be chosen."""

    actor: str | None = None
    message: str | None = None
    client_key: str | None = None
    if_commit: str | None = None

    def __post_init__(self) -> None:
        if self.actor is not None:
            raise Unsupported(
                "over HTTP the actor comes from the token",
                code="actor_from_token",
                advice="Leave out `actor`, and connect with the token of the one who acts",
                actor=self.actor,
            )

    def to_json(self) -> dict[str, Any]:
        """The fields that travel in the body; the client key travels in a header."""
        return {"message": self.message, "if_commit": self.if_commit}


_WRITE_OPTIONS = frozenset(field.name for field in fields(RemoteWriteOptions))


def over_http(
    verb: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., A]], Callable[Concatenate[Any, P], A]]:
    """Give a method of the remote client the parameters, defaults and documentation of the facade's `verb`.

    The method lists the parameters that it sends to the server. `write` stands for all of `RemoteWriteOptions`, and
    `**` for all that the method does not list. Without `**` these are refused unless they have their defaults.
    """
    facade = inspect.signature(verb)

    def decorate(send: Callable[..., A]) -> Callable[Concatenate[Any, P], A]:
        sent = inspect.signature(send)
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in sent.parameters.values())

        def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> A:
            try:
                bound = facade.bind(self, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{verb.__name__}() {error}") from None
            bound.apply_defaults()
            values = dict(list(bound.arguments.items())[1:])
            if "write" in sent.parameters:
                write = {name: values.pop(name) for name in _WRITE_OPTIONS & values.keys()}
                values["write"] = RemoteWriteOptions(**write)
            if not takes_all:
                unsent = [name for name in values if name not in sent.parameters]
                refuse_options(verb, {name: values.pop(name) for name in unsent})
            return send(self, **values)

        call.__name__, call.__qualname__, call.__doc__ = send.__name__, send.__qualname__, send.__doc__ or verb.__doc__
        call.__wrapped__ = send  # type: ignore[attr-defined]
        call.__signature__ = facade.replace(return_annotation=sent.return_annotation)  # type: ignore[attr-defined]
        return call

    return decorate


def refuse_options(verb: Callable[..., object], options: Mapping[str, object]) -> None:
    """Refuse options that the facade's `verb` has and a server has not, unless they have their defaults."""
    parameters = inspect.signature(verb).parameters
    for name, value in options.items():
        if name not in parameters:
            raise TypeError(f"{verb.__name__}() got an unexpected keyword argument {name!r}")
        if value != parameters[name].default:
            raise not_over_http(f"{verb.__name__}({name}=…)", "The server decides that")


def missing_attribute(name: str, class_name: str, facade: type) -> Exception:
    """The error for an attribute that the remote class does not have, whether the facade has it or not."""
    if not name.startswith("_") and hasattr(facade, name):
        return not_over_http(name, "Open the graph itself, or use the command line")
    return AttributeError(f"{class_name!r} object has no attribute {name!r}")


def not_over_http(verb: str, advice: str) -> Unsupported:
    return Unsupported(f"`{verb}` is not possible over HTTP", code="not_over_http", advice=advice, verb=verb)
