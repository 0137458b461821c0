"""Whether a call that waits can still be made: an upgrade may have changed or removed its tool."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from baobab.tools.approvals.errors import CallOutdated
from baobab.tools.core import BaobabError
from baobab.tools.core.auth import proposers
from baobab.tools.core.call import Tool, ToolRunner


def list_effects(tool: Tool) -> tuple[str, ...]:
    """Lists the effects with which a call of a tool may have been proposed."""
    return (tool.effect,) if tool.destructive_when is None else (tool.effect, "destructive")


def require_makeable(registry: ToolRunner, row: Any, arguments: Mapping[str, Any]) -> None:
    """Raises CallOutdated or CallerUnreadable if this version of the server cannot make the call of a row.

    A tool whose words changed takes the calls of former versions; one whose effect changed, or which does not take
    their arguments any more, does not.
    """
    proposers.read_version(row.caller)
    tool = registry.tools.get(row.tool)
    if tool is None:
        raise CallOutdated(f"The server was upgraded, and there is no tool `{row.tool}` any more.")
    if tool.version == row.tool_version:
        return
    if row.effect not in list_effects(tool):
        raise CallOutdated(
            f"The server was upgraded: the effect of `{row.tool}` was `{row.effect}`, and is `{tool.effect}` now."
        )
    try:
        # The names are compared before the values: an argument that is gone must not be dropped.
        if tool.names_fit(arguments):
            tool.validate(json.loads(json.dumps(arguments)))
            return
    except (ValidationError, BaobabError):
        pass
    raise CallOutdated(f"The server was upgraded, and `{row.tool}` does not take the arguments of this call any more.")
