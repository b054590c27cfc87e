"""The journal: one JSON object per event, a line each on stderr."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from typing import Any

from omnigraph.clock import Clock

LOGGER = logging.getLogger("omnigraph.server")


class Journal:
    """Writes events. A `debug` event is dropped unless the logger is set to it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def write(self, event: str, level: int = logging.INFO, error: BaseException | None = None, **facts: Any) -> None:
        if not LOGGER.isEnabledFor(level):
            return
        line: dict[str, Any] = {
            "at": self._clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": logging.getLevelName(level).lower(),
            "event": event,
            **{name: value for name, value in facts.items() if value is not None},
        }
        if error is not None:
            line["error"] = f"{type(error).__name__}: {error}"
            if level >= logging.ERROR:
                line["trace"] = "".join(traceback.format_exception(error))
        LOGGER.log(level, json.dumps(line, ensure_ascii=False, default=str))


def log_to_stderr(clock: Clock, level: int = logging.INFO) -> None:
    """Send the journal to stderr, and the messages of the web server as lines of the same kind."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.handlers[:] = [handler]
    LOGGER.propagate = False
    LOGGER.setLevel(level)
    web = logging.getLogger("uvicorn")
    web.handlers[:] = [_JournalHandler(Journal(clock))]
    web.propagate = False


class _JournalHandler(logging.Handler):
    """Writes the messages of another logger into the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._journal.write("web server", record.levelno, error, message=record.getMessage())
