"""The right of an app, which a node of its agent may lend to one call that somebody else than its starter approves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core.auth.callers import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class AsApp:
    """How a node of a graph may call a tool with the app's right: which arguments it may give, and how.

    literal: arguments without placeholders. fills: arguments whose values placeholders may fill. columns: those of
    `fills` whose names are written in the graph. filters: those of `fills` that are filters by column, whose columns
    and operators are written in the graph. names: those of `fills` that begin with text of the graph, such as a key.
    Any other argument cannot be given.
    """

    literal: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AppRight:
    """The app's right for one call of a run. An approval is bound to it and to the call.

    asker: who the run acts for, whose call it is; the right is the app's.
    """

    agent_id: str
    node: str
    digest: str
    """The digest of the node as the run has it. The agent must have the same node when the call is made."""
    edit: tuple[tuple[str, ...], ...]
    """The places of the arguments that whoever approves the call may change."""
    not_by: tuple[str, ...]
    """Who may not approve it: everybody who took part in starting the run (tools/core/auth/deciders.py)."""
    asker: Caller

    @property
    def as_column(self) -> dict[str, Any]:
        """Returns the JSON object that the row of an approval stores."""
        return {
            "agent_id": self.agent_id,
            "node": self.node,
            "digest": self.digest,
            "edit": [list(path) for path in self.edit],
            "not_by": list(self.not_by),
        }


def name_editable_fields(app_right: Mapping[str, Any] | None) -> list[str] | None:
    """Returns the arguments that an approver may change, as `changes.amount`; None for a call without the app's right.

    app_right: the column of an approval's row.
    """
    return None if app_right is None else [".".join(path) for path in app_right["edit"]]
