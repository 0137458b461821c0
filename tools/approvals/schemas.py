"""The schemas of the approval tools' arguments and answers."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import JsonObject
from baobab.tools.core.effects import Effect
from baobab.tools.core.guard.changes import Change
from baobab.tools.core.types import Json

Status = Literal["pending", "approved", "executed", "failed", "rejected", "expired"]


class Refusal(TypedDict):
    """Why an approved call failed."""

    code: str
    message: str
    remediation: str
    details: dict[str, Any]


class Asker(TypedDict):
    """The proposer; for a run, whoever started it. Names are as their owners chose them."""

    kind: Annotated[
        Literal["account", "key", "user", "visitor"],
        Field(description="A person of the organisation, an API key, a user of the app, or somebody not signed in."),
    ]
    name: Annotated[
        str | None,
        Field(description="What the key is called, while it is in force, or the user's id; null for the others."),
    ]
    account: Annotated[str | None, Field(description="The person, or whose key it is: a name and an e-mail address.")]
    door: Annotated[str, Field(description="Where the call came in, such as `rest`, `mcp` or `agent`.")]
    trigger: NotRequired[Annotated[str, Field(description="The trigger that started the run, with their right.")]]


class AnnouncedWrite(TypedDict):
    """The write that follows a question. Answering approves exactly this call, if `may_consent`."""

    node: Annotated[str, Field(description="The node of the agent's graph that makes the call.")]
    tool: str
    summary: Annotated[str, Field(description="What the call does, and with which arguments, as far as is known.")]
    arguments: Annotated[
        JsonObject | None,
        Field(description="What it will be called with, with null where the answer has nothing yet; null for others."),
    ]
    open: Annotated[list[str], Field(description="The arguments that the answer fills, such as `changes.amount`.")]
    run_as: Annotated[Literal["app"] | None, Field(description="Whose right it uses, as in an approval.")]
    approvers: Annotated[Json, Field(description="Who may approve it.")]
    may_consent: Annotated[
        bool,
        Field(description="Whether the caller's answer approves it; if not, it waits for others."),
    ]


class TitlePart(TypedDict):
    text: str
    own: Annotated[
        bool, Field(description="Whether the words are the server's or the graph's author's; else a stranger's.")
    ]


class Source(TypedDict):
    """A text that a run has read."""

    text: Annotated[str, Field(description="What it is and whose, such as “Cracked shade” in tickets by Carla.")]
    own: Annotated[bool, Field(description="Whether it is the app's own text, and not from outside.")]


class ForeignValue(TypedDict):
    """A value of a call that stands only in text from outside."""

    argument: str
    value: str
    source: str


class Warned(TypedDict):
    """Why whoever decides should look twice."""

    cause: Literal["value", "pays", "deletes", "rights", "other_person"]
    fact: Annotated[str, Field(description="What is so.")]
    reason: Annotated[str, Field(description="Why that matters.")]
    values: list[ForeignValue]


class Approval(TypedDict):
    id: str
    status: Status
    tool: str
    effect: Effect
    title: Annotated[
        str,
        Field(description="What would happen, on one line. A stranger's words are quoted, or stand after a colon."),
    ]
    title_parts: Annotated[list[TitlePart], Field(description="The same in its parts.")]
    button: Annotated[
        str,
        Field(
            description="What a button says that approves it, such as `Refund 240 EUR`: words of the server or of the "
            "graph's author, and at most a number of the call. op:approvals_get tries the call, and counts what it "
            "would change now."
        ),
    ]
    undo: Annotated[
        Literal["possible", "never", "unknown"],
        Field(
            description="Whether op:data_undo could take back what it writes. `possible` and `never` are what trying "
            "the waiting call has shown, or that its tool has no undo; lists do not try calls."
        ),
    ]
    undo_days: Annotated[int | None, Field(description="For how many days, if `undo` is `possible`.")]
    excerpt: Annotated[
        str | None, Field(description="One line of the text that the call proposes, as its proposer wrote it.")
    ]
    asked_by: Annotated[str, Field(description="Who asks, in words: names as their owners chose them.")]
    asker: Annotated[Asker, Field(description="The same in its parts.")]
    app_name: str | None
    agent: Annotated[str | None, Field(description="The agent whose run asks.")]
    summary: Annotated[str, Field(description="What the call would do, and with which arguments.")]
    run_as: Annotated[
        Literal["app"] | None,
        Field(
            description="Whose right the call uses: `app` is the app's own, which the agent's node lends to this call "
            "only; null is the right of whoever asks."
        ),
    ]
    node: Annotated[
        str | None,
        Field(
            description="The node of the agent's graph that makes the call; with `run_as`, it lends the right. Empty "
            "where a model wants the call; null for calls of keys."
        ),
    ]
    edit: Annotated[
        list[str] | None,
        Field(
            description="With `run_as`: the arguments that whoever approves may change, as `changes.amount`; null: "
            "all of a run's call, none of a key's."
        ),
    ]
    app_id: str | None
    proposer: Annotated[str, Field(description="The credential that made the call.")]
    account_id: Annotated[str, Field(description="The account that this credential belongs to.")]
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decided_by: Annotated[str | None, Field(description="The account that decided, or the app's user.")]
    decided_by_name: Annotated[
        str | None, Field(description="The name of whoever decided, and of the key that they used.")
    ]
    reason: str | None
    finished_at: datetime | None
    error: Refusal | None
    warnings: Annotated[
        list[str],
        Field(
            description="What the executed call said beside its result, such as which keys it left out; of one that "
            "waits, what it would say, where that approval alone is read."
        ),
    ]
    action_id: Annotated[
        str | None, Field(description="The write of rows that the executed call made: op:data_undo takes it back.")
    ]
    tainted: Annotated[
        bool | None, Field(description="Whether the run that asks has read text that strangers may have written.")
    ]
    read: Annotated[
        list[Source] | None,
        Field(description="What the run has read before it asked; null for a key's own call, and for the app's users."),
    ]
    warning: Annotated[
        Warned | None,
        Field(
            description="Only if it has read text from outside, and a value of the call stands in that text alone, or "
            "the call pays, deletes, gives rights, or writes to others than the authors of that text."
        ),
    ]
    edited: Annotated[
        bool | None,
        Field(description="Whether whoever approved it changed the arguments; `summary` then says what was used."),
    ]
    asked_summary: Annotated[str | None, Field(description="What was asked, where the arguments were changed.")]
    run_id: Annotated[str | None, Field(description="The run of an agent that waits for it.")]
    approvers: Annotated[
        Json,
        Field(
            description="Who decides: a word (`starter`, `user`, `member`, `admin`, or `account`: whom the key belongs "
            'to), {"role": ...} or {"persons": ..., "of": ...}. Admins of the organisation always may.'
        ),
    ]
    agreed: Annotated[list[str], Field(description="Who has approved it, where several persons must.")]
    agreed_names: Annotated[list[str], Field(description="Their names.")]
    may_decide: Annotated[bool, Field(description="Whether the caller is among those who decide.")]
    arguments: Annotated[
        JsonObject | None,
        Field(
            description="All that the call says, but for secrets; null once it is no longer kept, and in lists where "
            "it is long. Of a call that was approved with other arguments, those; they are kept."
        ),
    ]
    question: Annotated[
        JsonObject | None,
        Field(description="What a run asks a person: `reason`, `data` and `answer_schema`. `data` answers it."),
    ]
    run: Annotated[
        JsonObject | None,
        Field(
            description="The run that asks: `id`, `agent`, `input` (null in lists where it is long) and, where one "
            "approval is read by somebody who may decide, `answers`: what its models have said so far, by `output_key`."
        ),
    ]
    then: Annotated[AnnouncedWrite | None, Field(description="Of a question that waits: the write that it announces.")]


class OneApproval(TypedDict):
    approval: Approval


class ShownValue(TypedDict):
    path: Annotated[str, Field(description="Such as `input.message` or `arguments.changes.answer`.")]
    value: Any


class ApprovalDetail(OneApproval):
    proposer_name: Annotated[str | None, Field(description="What the proposing key is called, while it is in force.")]
    arguments: Annotated[JsonObject | None, Field(description="As in `approval`.")]
    may_decide: bool
    may_edit: Annotated[
        bool,
        Field(
            description="Whether the caller may change what it would be called with, or answer it. An approver changes "
            "only what the agent's author opens: a question, or the fields of a node's `edit`."
        ),
    ]
    arguments_text: Annotated[
        str | None, Field(description="The same as text for people: nothing in it is invisible or changes its order.")
    ]
    shown: Annotated[
        list[ShownValue], Field(description="What the author of the graph wants to be read first, while it waits.")
    ]
    run_input: Annotated[str | None, Field(description="What the run that asks was given, as text for people.")]
    preview: Annotated[str | None, Field(description="What the call would do at this moment, where its tool can tell.")]
    then: Annotated[AnnouncedWrite | None, Field(description="Of a question: the write that it announces.")]
    would_fail: Annotated[
        bool, Field(description="Whether it would fail at this moment: then only `even_if_failing` approves it.")
    ]
    changes: Annotated[
        list[Change] | None,
        Field(
            description="What it would change at this moment, before and after; null where its tool cannot tell, and "
            "for all but people and keys of the organisation."
        ),
    ]


class Approvals(TypedDict):
    """Newest first."""

    approvals: list[Approval]
    next_cursor: str | None
