"""Decides who may decide: the one rule for approve, reject, resume and cancel, over every interface."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, Caller, EndUser
from baobab.tools.core.auth.roles import APPROVER, Role, rank
from baobab.tools.core.errors import Conflict, Forbidden

STARTER, USER, MEMBER, ADMIN = "starter", "user", "member", "admin"
OWNER_OF_KEY = "account"
"""The owner of the key that proposed the call. A user of the app never decides about a key that needs approval."""
_ROLE = "role:"
_NOBODY = "nobody"


class NotYoursToDecide(Forbidden):
    code = "APPROVAL_SELF_DECISION"
    summary = "The credential that proposed a call cannot decide it, nor can a key that itself needs approval."
    remediation = "A person decides, signed in (op:platform_login) or with a key of their own without limits."


class NotAnApprover(Forbidden):
    code = "APPROVAL_OTHERS_DECIDE"
    summary = "You are not an approver of this call."
    remediation = "Ask one of its approvers, or an admin of the organisation; details.approvers says who they are."


class NeedsAnother(Conflict):
    code = "APPROVAL_NEEDS_ANOTHER"
    summary = "You have already approved this. Another person must approve it, too."
    remediation = "Ask somebody else of its approvers to decide."


@dataclass(frozen=True, slots=True)
class Approvers:
    """The approvers that an agent or node names. `of` is a word, or `role:` and a role of the app's users."""

    of: str
    persons: int = 1

    @classmethod
    def parse(cls, value: Any) -> "Approvers":
        """Builds approvers from JSON (a word, `{"role": ...}` or `{"persons": ..., "of": ...}`) or from its model."""
        if isinstance(value, BaseModel):
            value = value.model_dump()
        if isinstance(value, Mapping) and "of" in value:
            return cls(cls.parse(value["of"]).of, value.get("persons", 1))
        return cls(f"{_ROLE}{value['role']}" if isinstance(value, Mapping) else str(value))

    @property
    def as_json(self) -> Any:
        """Its JSON shape."""
        of = {"role": self.of.removeprefix(_ROLE)} if self.of.startswith(_ROLE) else self.of
        return of if self.persons == 1 else {"persons": self.persons, "of": of}

    @property
    def as_column(self) -> dict[str, Any]:
        """Returns the JSON object that the column stores."""
        shape = self.as_json
        return {"persons": self.persons, "of": shape["of"] if self.persons > 1 else shape}


@dataclass(frozen=True, slots=True)
class PendingDecision:
    """Something that waits for a decision: its app, who started it, and who may decide.

    account_id: whom the proposal belongs to. run: whether a run waits for it, or the key that proposed it. not_by: who
    may not decide, whatever else they may: those who started the run, where its call uses the app's right.
    """

    app_id: str | None
    account_id: str
    starter: str
    approvers: Approvers
    run: bool = True
    not_by: frozenset[str] = frozenset()

    @classmethod
    def of_approval(cls, row: Any) -> "PendingDecision":
        """Returns what is to be decided about a row of `approvals`."""
        of = row.approvers or (STARTER if row.run_id else OWNER_OF_KEY)
        starter = row.starter or f"account:{row.account_id}"
        not_by = frozenset((row.app_right or {}).get("not_by", ()))
        return cls(row.app_id, row.account_id, starter, Approvers(of, row.persons or 1), row.run_id is not None, not_by)

    @classmethod
    def of_run(cls, run: Any, approvers: Any = None, *, as_app: bool = False) -> "PendingDecision":
        """Builds the decision to end a run, by whoever started it; or, with `approvers`, about a call of the run.

        as_app: whether that call uses the app's right.
        """
        rule = Approvers(STARTER) if approvers is None else Approvers.parse(approvers)
        not_by = frozenset(starters_of(run)) if as_app else frozenset[str]()
        return cls(run.app_id, run.account_id, starter_of(run), rule, not_by=not_by)


@dataclass(frozen=True, slots=True)
class Decider:
    """Somebody who wants to decide. role: of the account, or of the key's maker, in the organisation concerned.

    app_ids: the only apps about whose calls an approver decides; None for all.
    """

    caller: Caller
    role: Role | None = None
    app_ids: frozenset[str] | None = None

    @property
    def runs_app(self) -> bool:
        """Whether it is an admin of the organisation, or an admin's key of the app."""
        return self.role is not None and rank(self.role) >= rank("admin")

    def may(self, pending: PendingDecision) -> bool:
        """Returns whether the caller may decide."""
        caller, of = self.caller, pending.approvers.of
        if caller.limits is not None or (not isinstance(caller, Account) and not pending.run):
            return False
        if isinstance(caller, (AppKey, EndUser, Anonymous)) and caller.app_id != pending.app_id:
            return False
        if not pending.not_by.isdisjoint(_names_of(caller)):
            return False
        is_starter = pending.starter == person(caller)
        if isinstance(caller, (Account, AppKey)):
            if self.role == APPROVER:
                # They stand in for a member where any member may decide, and have no right of their own beside that.
                is_chosen = self.app_ids is None or pending.app_id in self.app_ids
                is_own = isinstance(caller, Account) and pending.run and of == MEMBER and is_chosen
            elif pending.run:
                is_own = of == MEMBER or (of in (STARTER, OWNER_OF_KEY) and is_starter)
            else:
                is_own = pending.account_id == caller.account_id
            return self.runs_app or (self.role is not None and is_own)
        if isinstance(caller, EndUser) and of in (USER, f"{_ROLE}{caller.role}"):
            return True
        # A visitor shows by the run's id, which nobody else knows, that the run is theirs.
        return isinstance(caller, (EndUser, Anonymous)) and of == STARTER and is_starter

    def require(self, pending: PendingDecision) -> None:
        """Raises NotYoursToDecide for a credential with limits, NotAnApprover for others who may not decide."""
        if self.caller.limits is not None:
            raise NotYoursToDecide
        if not self.may(pending):
            details = {"approvers": pending.approvers.as_json}
            if not pending.not_by.isdisjoint(_names_of(self.caller)):
                raise NotAnApprover(
                    "The call uses the app's right, so somebody else than who started the run decides.",
                    remediation="Ask one of details.approvers or another admin of the organisation. To try it alone, "
                    "start a run without your credential, as a visitor or user of the app does (op:agents_public_run), "
                    "and decide about that one.",
                    details=details,
                )
            raise NotAnApprover(details=details)


def person(caller: Caller) -> str:
    """Returns a text for the person behind a credential; it is the same for two keys of one account."""
    match caller:
        case EndUser():
            return f"user:{caller.user_id}"[:100]
        case Account():
            return f"account:{caller.account_id}"
        case AppKey():
            return f"account:{caller.account_id}" if caller.account_id else f"key:{caller.key_id}"[:100]
    return "anonymous" if isinstance(caller, Anonymous) else _NOBODY


def _names_of(caller: Caller) -> set[str]:
    """Returns the names of the person behind a credential, and of a key that acts for nobody but itself."""
    return {person(caller), f"key:{caller.key_id}"[:100]} if isinstance(caller, AppKey) else {person(caller)}


def name_starter(caller: Caller) -> list[str]:
    """Returns the names of the credential with which a run is started: its account's, or the app key that acts, if
    only for a user.
    """
    if isinstance(caller, Account):
        return [f"account:{caller.account_id}"]
    key_id = caller.key_id if isinstance(caller, (AppKey, EndUser)) else None
    return [] if key_id is None else [f"key:{key_id}"[:100]]


def starters_of(run: Any) -> list[str]:
    """Returns all who took part in starting a run, from its row: whom it acts for, and who had it started."""
    return sorted({starter_of(run), *run.caller.get("started_by", ())})


def starter_of(run: Any) -> str:
    """Returns the person who started a run, from its row."""
    match run.caller_kind:
        case "end_user":
            return f"user:{run.caller_user_id}"[:100]
        case "anonymous":
            return "anonymous"
    return f"account:{run.account_id}" if run.account_id else run.subject
