"""Bearer tokens: who may ask, hashed at rest.

The file is one JSON object, `{"tokens": [{name, role, salt, hash, created_at, expires_at}]}`. A token is 160 random
bits, so one salted SHA-256 is enough: nothing can be guessed that a slow hash would have to protect. A file that
changed is read again, so that a token can be taken back without a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

from omnigraph.clock import Clock, IdSource
from omnigraph.errors import InvalidInput, NotFound

Role = Literal["read", "write"]
ROLES: tuple[str, ...] = get_args(Role)
VARIABLE = "OMNIGRAPH_TOKENS"
_PREFIX = "og_"
_SECRET_CHARS = 32
_SALT_CHARS = 16
_MAX_NAME = 128


@dataclass(frozen=True, slots=True)
class Token:
    """One token as it is stored: a hash instead of the text that callers send."""

    name: str
    role: Role
    salt: str
    hash: str
    created_at: str | None = None
    expires_at: str | None = None

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(self.hash, _digest(self.salt, text))

    def has_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and now >= datetime.fromisoformat(self.expires_at)


def mint(ids: IdSource, clock: Clock, name: str, role: str, expires_at: datetime | None = None) -> tuple[str, Token]:
    """A new token: the text to hand over once, and the `Token` to store."""
    text = f"{_PREFIX}{ids.token(_SECRET_CHARS)}"
    token = _make_token(ids.token(_SALT_CHARS), name, role, text)
    ends = _format_time(expires_at) if expires_at else None
    return text, replace(token, created_at=_format_time(clock.now()), expires_at=ends)


def read_tokens(path: Path) -> tuple[Token, ...]:
    """All tokens of a file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return tuple(_check_token(Token(**entry)) for entry in document["tokens"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"the token file {path} cannot be read: {error}",
            code="bad_token_file",
            advice="Make one with `omnigraph token create`",
        ) from error


def write_tokens(path: Path, tokens: Sequence[Token]) -> None:
    """Replace the file in one step, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    data = json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=2) + "\n"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)


def add_token(path: Path, token: Token) -> None:
    tokens = read_tokens(path) if path.exists() else ()
    if any(existing.name == token.name for existing in tokens):
        raise InvalidInput(
            f"there is a token {token.name!r} already",
            code="token_exists",
            advice="Revoke it first, or choose another name",
            name=token.name,
        )
    write_tokens(path, [*tokens, token])


def revoke_token(path: Path, name: str) -> None:
    tokens = read_tokens(path)
    remaining = [token for token in tokens if token.name != name]
    if len(remaining) == len(tokens):
        raise NotFound(f"there is no token {name!r}", advice="See `omnigraph token list`", name=name)
    write_tokens(path, remaining)


def tokens_of_environment(ids: IdSource, environment: Mapping[str, str]) -> tuple[Token, ...]:
    """`OMNIGRAPH_TOKENS` holds `name:role:token`, several separated by blanks or commas."""
    tokens = []
    for entry in environment.get(VARIABLE, "").replace(",", " ").split():
        name, _, role_and_text = entry.partition(":")
        role, _, text = role_and_text.partition(":")
        if not (name and text):
            raise InvalidInput(f"{VARIABLE} has an entry that is not name:role:token", code="bad_token_file")
        tokens.append(_check_token(_make_token(ids.token(_SALT_CHARS), name, role, text)))
    return tuple(tokens)


class Tokens:
    """The tokens that a server accepts. A lookup takes the same time for every token and for an unknown text."""

    def __init__(self, clock: Clock, fixed: Sequence[Token] = (), file: Path | None = None) -> None:
        self._clock = clock
        self._fixed = tuple(fixed)
        self._file = file
        self._lock = Lock()
        self._read: tuple[Token, ...] = ()
        self._file_state: tuple[int, int, int] | None = None
        if file is not None:
            self._refresh(file)

    @property
    def are_needed(self) -> bool:
        """Whether callers must send a token: a file without tokens lets nobody in."""
        return bool(self._fixed) or self._file is not None

    def find(self, text: str) -> Token | None:
        """The token of this text, expired or not."""
        if self._file is not None:
            self._refresh(self._file)
        matching = [token for token in (*self._fixed, *self._read) if token.matches(text)]
        return matching[0] if matching else None

    def has_expired(self, token: Token) -> bool:
        return token.has_expired(self._clock.now())

    def _refresh(self, file: Path) -> None:
        try:
            status = file.stat()
        except OSError:
            with self._lock:
                self._read, self._file_state = (), None
            return
        file_state = (status.st_mtime_ns, status.st_size, status.st_ino)
        with self._lock:
            if file_state != self._file_state:
                self._read, self._file_state = read_tokens(file), file_state


def _make_token(salt: str, name: str, role: Any, text: str) -> Token:
    return _check_token(Token(name, role, salt, _digest(salt, text)))


def _check_token(token: Token) -> Token:
    if token.role not in ROLES:
        raise InvalidInput(f"{token.role!r} is no role", code="bad_role", advice=f"Use {' or '.join(ROLES)}")
    if not token.name or len(token.name) > _MAX_NAME or not token.name.isprintable():
        raise InvalidInput(f"{token.name!r} cannot name a token", code="bad_token_name", advice="Use printable text")
    if token.expires_at is not None and datetime.fromisoformat(token.expires_at).tzinfo is None:
        raise InvalidInput(f"token {token.name!r}: expires_at has no time zone", code="bad_token_file")
    return token


def _digest(salt: str, text: str) -> str:
    return hashlib.sha256(f"{salt}:{text}".encode("utf-8", "surrogatepass")).hexdigest()


def _format_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
