"""Baobab with two hundred tools: its own, and others that nobody calls. Takes what the command `baobab` takes."""

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from baobab import tools
from baobab.cli import main
from baobab.tools.core.auth.access import AppOwner
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.call import Call
from baobab.tools.core.registry import Registry
from baobab.tools.core.types import AppId
from baobab.tools.system.toolset import system
from tests.bench.wide_server import raise_limits

COUNT = 200


class Answer(TypedDict):
    value: Any


async def other(
    call: Call,
    app_id: AppId,
    key: Annotated[str, Field(min_length=1, max_length=1024)],
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
) -> Answer:
    """Stand beside the tool that is called, as most tools do.

    limit: how many.
    """
    return {"value": [app_id, key, limit]}


def add_tools() -> None:
    """Add to a family what the list of an account's key lacks."""
    visible_tools = Registry(tools.toolsets()).visible_to(Account("account", "organisation", "key"))
    for number in range(COUNT - len(visible_tools)):
        other.__name__ = f"other_{number}"
        system.tool(access=AppOwner("member"), effect="read")(other)


if __name__ == "__main__":
    raise_limits()
    add_tools()
    main()
