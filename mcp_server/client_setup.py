"""What to type or paste so that a client of MCP knows this server: one line for each, in the client's own form."""

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def render_client_lines(url: str, key: str) -> Mapping[str, str]:
    """By the client's name (and the file that a line of JSON belongs into) a command for a shell, or JSON."""
    bearer = f"Bearer {key}"
    headers = {"Authorization": bearer}
    return {
        "Claude Code": f'claude mcp add --transport http baobab {url} --header "Authorization: {bearer}"',
        "Codex": f"export MCP_KEY={key}; codex mcp add baobab --url {url} --bearer-token-env-var MCP_KEY",
        "Gemini CLI": f'gemini mcp add --transport http --header "Authorization: {bearer}" baobab {url}',
        "VS Code": "code --add-mcp '"
        + json.dumps({"name": "baobab", "type": "http", "url": url, "headers": headers})
        + "'",
        "Cursor (~/.cursor/mcp.json)": _render_servers({"type": "http", "url": url, "headers": headers}),
        "Windsurf (mcp_config.json)": _render_servers({"serverUrl": url, "headers": headers}),
        "Claude Desktop (claude_desktop_config.json)": _render_servers(_build_bridge(url, bearer)),
    }


def _build_bridge(url: str, bearer: str) -> Mapping[str, object]:
    """For clients that only start local commands. No space in an argument: Windows tears such arguments apart."""
    insecure = url.startswith("http:") and urlsplit(url).hostname not in _LOOPBACK
    arguments = ["-y", "mcp-remote", url, *(["--allow-http"] if insecure else [])]
    return {
        "command": "npx",
        "args": [*arguments, "--header", "Authorization:${MCP_AUTHORIZATION}"],
        "env": {"MCP_AUTHORIZATION": bearer},
    }


def _render_servers(entry: Mapping[str, object]) -> str:
    return json.dumps({"mcpServers": {"baobab": entry}})
