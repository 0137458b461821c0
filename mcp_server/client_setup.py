"""The setup lines of MCP clients: what to type or paste so that a client connects to this server."""

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def render_client_lines(url: str, key: str | None) -> Mapping[str, str]:
    """Returns a shell command, or JSON for the file that the name mentions, by the client's name.

    key: None for lines without one, with which the client signs in over OAuth.
    """
    bearer = f"Bearer {key}"
    headers = {"headers": {"Authorization": bearer}} if key else {}
    option = f' --header "Authorization: {bearer}"' if key else ""
    codex = f"codex mcp add baobab --url {url}"
    return {
        "Claude Code": f"claude mcp add --transport http baobab {url}{option}",
        "Codex": f"export MCP_KEY={key}; {codex} --bearer-token-env-var MCP_KEY" if key else codex,
        "Gemini CLI": f"gemini mcp add --transport http{option} baobab {url}",
        "VS Code": "code --add-mcp '" + json.dumps({"name": "baobab", "type": "http", "url": url, **headers}) + "'",
        "Cursor (~/.cursor/mcp.json)": _render_servers({"type": "http", "url": url, **headers}),
        "Windsurf (mcp_config.json)": _render_servers({"serverUrl": url, **headers}),
        "Claude Desktop (claude_desktop_config.json)": _render_servers(_build_bridge(url, bearer if key else None)),
    }


def _build_bridge(url: str, bearer: str | None) -> Mapping[str, object]:
    """Builds the entry for clients that can only start local commands. No argument has a space, because Windows splits
    those.
    """
    insecure = url.startswith("http:") and urlsplit(url).hostname not in _LOOPBACK
    arguments = ["-y", "mcp-remote", url, *(["--allow-http"] if insecure else [])]
    if bearer is None:
        return {"command": "npx", "args": arguments}
    return {
        "command": "npx",
        "args": [*arguments, "--header", "Authorization:${MCP_AUTHORIZATION}"],
        "env": {"MCP_AUTHORIZATION": bearer},
    }


def _render_servers(entry: Mapping[str, object]) -> str:
    return json.dumps({"mcpServers": {"baobab": entry}})
