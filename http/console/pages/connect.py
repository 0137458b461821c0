"""/console/connect: how a client connects to this server, in lines that can be copied."""

import json

from baobab.http.console.page import Context, Page
from baobab.http.console.visit import Visit
from baobab.mcp_server.client_setup import render_client_lines


async def show_connect(visit: Visit) -> Context:
    address = visit.registry.services.options.base_url
    lines = render_client_lines(f"{address}/mcp", "YOUR_KEY")
    # JSON that belongs into a file is indented.
    formatted_lines = {
        name: json.dumps(json.loads(line), indent=2) if line[0] == "{" else line for name, line in lines.items()
    }
    return {"address": address, "mcp": f"{address}/mcp", "lines": formatted_lines}


PAGES = (
    Page(
        "/connect",
        "Connect a client",
        "connect.html",
        show_connect,
        menu="Connect a client",
        group="Account",
        icon="link",
    ),
)
