"""Tools that tell the client something before they answer: log lines, progress, changed lists."""

import asyncio

import mcp_types as types

from baobab.mcp_server.extension import Context
from baobab.tools.core.services import Services
from tests.e2e.profile.toolbox import Toolbox, text_result

Call = types.CallToolRequestParams
Result = types.CallToolResult


class NotificationTools(Toolbox):
    services: Services
    """Of the installation that has these tools, once it is open."""

    async def publish_change(self, topic: str) -> Result:
        """Do what the product does when a list has changed."""
        unit = self.services.database.build_unit(write=True)
        await self.services.notices.publish(unit, topic, "*")
        await unit.commit()
        return text_result(f"The {topic} have changed.")


NOTIFICATIONS = NotificationTools()

# The suite asks for pauses, so that a client sees the lines come one by one.
_PAUSE_SECONDS = 0.05


@NOTIFICATIONS.tool("Logs three lines.")
async def test_tool_with_logging(ctx: Context, params: Call) -> Result:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)
        await asyncio.sleep(_PAUSE_SECONDS)
    return text_result("Logged three lines.")


@NOTIFICATIONS.tool("Logs a line where the request asks for log lines.")
async def test_logging_tool(ctx: Context, params: Call) -> Result:
    await ctx.session.send_log_message("info", "A line.", related_request_id=ctx.request_id)
    return text_result("Logged a line for those who asked.")


@NOTIFICATIONS.tool("Reports progress three times.")
async def test_tool_with_progress(ctx: Context, params: Call) -> Result:
    for progress in (0, 50, 100):
        await ctx.session.report_progress(progress, 100, f"Completed step {progress} of 100")
        await asyncio.sleep(_PAUSE_SECONDS)
    return text_result("Reported progress.")


@NOTIFICATIONS.tool("Changes the list of tools.")
async def test_trigger_tool_change(ctx: Context, params: Call) -> Result:
    return await NOTIFICATIONS.publish_change("tools")


@NOTIFICATIONS.tool("Changes the list of prompts.")
async def test_trigger_prompt_change(ctx: Context, params: Call) -> Result:
    return await NOTIFICATIONS.publish_change("prompts")
