"""JSON bodies of requests. Unknown fields are refused: a misspelt field must not become a silent default.

Class names of this module are names of components in the OpenAPI document.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Params = Annotated[
    dict[str, Any], Field(description="Values of the query's parameters, by name.", examples=[{"n": "Ada"}])
]
BranchField = Annotated[str | None, Field(description="Branch; `main` if it is not named.")]
AtField = Annotated[str | None, Field(description="Read this commit, of any branch, instead of a branch's newest.")]
MessageField = Annotated[str | None, Field(description="Why, for the history.")]
IfCommitField = Annotated[
    str | None, Field(description="Only if this is still the newest commit; else 412. `If-Match` says the same.")
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _WriteBody(_Body):
    branch: BranchField = None
    message: MessageField = None
    if_commit: IfCommitField = None


class QueryBody(_Body):
    """A reading query."""

    source: str = Field(
        description="The query's text.",
        examples=["query find($n: String) { match { $p: Person { name: $n } } return { $p.name } }"],
    )
    params: Params = {}
    name: str | None = Field(default=None, description="Which query, if the text holds several.")
    branch: BranchField = None
    at: AtField = None
    explain: bool = Field(default=False, description="Tell how it would be run instead of its rows.")
    profile: bool = Field(default=False, description="Run it and tell what each step did.")


class MutateBody(_WriteBody):
    """A mutation: one commit or none."""

    source: str = Field(
        description="The mutation's text.", examples=["query add($n: String) { insert Person { name: $n } }"]
    )
    params: Params = {}
    batch: list[dict[str, Any]] | None = Field(
        default=None, description="Run it once per object, all in one commit; `params` are added to each."
    )
    name: str | None = Field(default=None, description="Which mutation, if the text holds several.")
    strict: bool = Field(default=False, description="An insert of an id that exists is a conflict.")
    on_conflict: Literal["retry", "fail"] = Field(
        default="retry", description="Run it again on the newer state, or fail."
    )


class StoredBody(_Body):
    """A call of a stored query."""

    params: Params = {}
    branch: BranchField = None
    at: AtField = None
    message: MessageField = None
    if_commit: IfCommitField = None


class BranchBody(_Body):
    """A branch to make."""

    name: str = Field(description="Name of the branch.", examples=["review/x"])
    source: str | None = Field(default=None, description="Branch or commit to start at; `main` if it is not named.")
    message: MessageField = None


class ResolutionBody(_Body):
    """How one conflict of rows is settled."""

    table_key: str = Field(description="`node:Type` or `edge:Type`.", examples=["node:Person"])
    id: str
    take: Literal["ours", "theirs"]


class MergeBody(_Body):
    """A merge of one branch into another, in one commit."""

    source: str = Field(description="Branch to merge.", examples=["review/x"])
    into: str | None = Field(default=None, description="Branch to merge into; `main` if it is not named.")
    cell_level: bool = Field(default=False, description="Changes of different properties of one row do not conflict.")
    resolve: Literal["ours", "theirs"] | None = Field(
        default=None, description="Settle every conflict of rows this way."
    )
    per_entity: list[ResolutionBody] = Field(default=[], description="Settle single conflicts.")
    dry_run: bool = Field(default=False, description="Only say what would happen.")
    delete_branch: bool = Field(default=False, description="Delete the source afterwards, unless it has moved on.")
    message: MessageField = None
    if_commit: IfCommitField = None


class SchemaBody(_Body):
    """A schema to compare with."""

    schema_: str = Field(alias="schema", description="The new schema's text.")
    branch: BranchField = None


class ApplyBody(_WriteBody):
    """A schema to bring a branch to."""

    schema_: str = Field(alias="schema", description="The new schema's text.")
    allow_data_loss: bool = Field(
        default=False, description="Let the next cleanup remove what is dropped; needs `confirm`."
    )
    confirm: bool = Field(default=False, description="Really drop data for good; without it only the plan is answered.")
