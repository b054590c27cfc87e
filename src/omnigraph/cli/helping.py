"""Help in words: without the names of Python's types and ranges that the library below would add."""

from __future__ import annotations

from typing import Any


def in_words(command: Any) -> Any:
    """The command and those below it, with arguments and bounds shown by their names and texts alone."""
    for one in command.params:
        if one.param_type_name == "argument":
            _name_plainly(one)
        else:
            # The text of an option says what its bounds mean.
            one._get_number_range_help_str = lambda: None
    for inner in getattr(command, "commands", {}).values():
        in_words(inner)
    return command


def _name_plainly(argument: Any) -> None:
    name = argument.metavar
    shown = name if argument.required or name.startswith("[") else f"[{name}]"
    argument.get_usage_pieces = lambda _: [shown]
    argument.get_help_record = lambda _: (name, argument.help or "")
