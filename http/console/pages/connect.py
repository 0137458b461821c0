"""/console/connect: how a client reaches this server, in lines that can be copied."""

from baobab.http.console.page import Context, Page
from baobab.http.console.visit import Visit
from baobab.mcp_server.client_setup import render_client_lines


async def show_connect(visit: Visit) -> Context:
    address = visit.registry.services.options.base_url
    return {"address": address, "mcp": f"{address}/mcp", "lines": render_client_lines(f"{address}/mcp", "YOUR_KEY")}


PAGES = (Page("/connect", "Connect a client", "connect.html", show_connect, menu="Connect a client", of_account=True),)
