"""Answers of a server as the values that the facade returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from omnigraph.api.view import CommitInfo
from omnigraph.commit.publish_plan import Receipt
from omnigraph.history.diff import Change
from omnigraph.history.diff_pages import DiffPage
from omnigraph.schema.change_steps import Refusal, SchemaChangeRefused

REPLAYED = "Idempotency-Replayed"


@dataclass(frozen=True, slots=True)
class FeedCommit:
    """One commit of the change feed."""

    commit: CommitInfo
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Commits of the change feed, and the cursor to go on from. `more` says that the page was full."""

    commits: tuple[FeedCommit, ...]
    cursor: str
    more: bool


@dataclass(frozen=True, slots=True)
class RemotePlan:
    """What a new schema changes, as the server answers it."""

    document: Mapping[str, Any]

    @property
    def supported(self) -> bool:
        return bool(self.document["supported"])

    @property
    def steps(self) -> list[dict[str, Any]]:
        return list(self.document["steps"])

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(Refusal(**refusal) for refusal in self.document["refused"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.steps)

    def check(self) -> None:
        """Raise `SchemaChangeRefused` unless every step is possible."""
        if self.refusals:
            raise SchemaChangeRefused(self.refusals)

    def to_json(self) -> dict[str, Any]:
        return dict(self.document)


def decode_receipt(response: httpx.Response) -> Receipt:
    """The receipt of a mutation."""
    document = response.json()
    return Receipt(
        document["commit_id"],
        document["counts"],
        {},
        document["replayed"],
        document["attempts"],
        document["waited_s"],
    )


def decode_schema_receipt(response: httpx.Response) -> Receipt:
    """The receipt of a schema change: its result is the plan that was carried out."""
    document = response.json()
    result = {name: value for name, value in document.items() if name not in ("branch", "commit_id")}
    return Receipt(document["commit_id"], {}, result, response.headers.get(REPLAYED) == "true")


def decode_commit(document: Mapping[str, Any]) -> CommitInfo:
    return CommitInfo(**{**document, "parents": tuple(document["parents"])})


def decode_diff_page(document: Mapping[str, Any]) -> DiffPage:
    return DiffPage(document["old"], document["new"], _decode_changes(document), document["cursor"])


def decode_feed_page(document: Mapping[str, Any], branch: str) -> FeedPage:
    """A page of the change feed of `branch`."""
    commits = tuple(_decode_feed_commit(commit, branch) for commit in document["commits"])
    return FeedPage(commits, document["cursor"], document["more"])


def _decode_feed_commit(document: Mapping[str, Any], branch: str) -> FeedCommit:
    header = {name: value for name, value in document.items() if name != "changes"}
    seq = int(document["commit_id"].rpartition(".")[2])
    return FeedCommit(decode_commit({"seq": seq, "branch": branch, **header}), _decode_changes(document))


def _decode_changes(document: Mapping[str, Any]) -> tuple[Change, ...]:
    return tuple(Change(**change) for change in document["changes"])
