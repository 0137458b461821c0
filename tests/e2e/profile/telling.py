"""Tools that tell the client something before they answer: log lines, progress, changed lists."""

import asyncio

import mcp_types as types

from baobab.mcp_server.extension import Context
from baobab.tools.core.services import Services
from tests.e2e.profile.toolbox import Toolbox, said

Call = types.CallToolRequestParams
Result = types.CallToolResult


class Telling(Toolbox):
    services: Services
    """Of the house that these tools stand in; there once it is open."""

    async def changed(self, topic: str) -> Result:
        """Do what the product does when a list has changed."""
        unit = self.services.database.build_unit(write=True)
        await self.services.notices.publish(unit, topic, "*")
        await unit.commit()
        return said(f"The {topic} have changed.")


TELLING = Telling()

# The suite asks for pauses, so that a client sees the lines come one by one.
_PAUSE_SECONDS = 0.05


@TELLING.tool("Logs three lines.")
async def test_tool_with_logging(ctx: Context, params: Call) -> Result:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)
        await asyncio.sleep(_PAUSE_SECONDS)
    return said("Logged three lines.")


@TELLING.tool("Logs a line where the request asks for log lines.")
async def test_logging_tool(ctx: Context, params: Call) -> Result:
    await ctx.session.send_log_message("info", "A line.", related_request_id=ctx.request_id)
    return said("Logged a line for those who asked.")


@TELLING.tool("Reports progress three times.")
async def test_tool_with_progress(ctx: Context, params: Call) -> Result:
    for progress in (0, 50, 100):
        await ctx.session.report_progress(progress, 100, f"Completed step {progress} of 100")
        await asyncio.sleep(_PAUSE_SECONDS)
    return said("Reported progress.")


@TELLING.tool("Changes the list of tools.")
async def test_trigger_tool_change(ctx: Context, params: Call) -> Result:
    return await TELLING.changed("tools")


@TELLING.tool("Changes the list of prompts.")
async def test_trigger_prompt_change(ctx: Context, params: Call) -> Result:
    return await TELLING.changed("prompts")
