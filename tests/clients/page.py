"""The page of clients, made from the matrix and from what its last whole run found."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.clients.matrix import CHECKS, PROVIDER_MODELS, Client, Interface, load_clients, load_left_out, load_results

_MARKED = re.compile(r"(?:#|//) Lines to paste\n(.*)(?:#|//) End of the lines\n", re.DOTALL)
_IMPORT = re.compile(r"^(?:from (?!checks)\S+ )?import .*$", re.MULTILINE)
_GIVEN = {
    r"`\$\{BASE\}/v1`": '"http://127.0.0.1:8000/v1"',
    r"`\$\{V1\}/data`": '"http://127.0.0.1:8000/v1/APP/data"',
    r"\b(?:checks\.)?V1\b": '"http://127.0.0.1:8000/v1/APP"',
    r"\b(?:checks\.)?BASE\b": '"http://127.0.0.1:8000"',
    r"\bHEADERS\b": '{ Authorization: "Bearer bb_sk_..." }',
    r"\b(?:checks\.)?KEY\b": '"bb_sk_..."',
}
"""What scripts call the server's address and the key, and what stands for them on the page."""


def read_lines(client: Client) -> str:
    """The marked lines of a client's script, behind its first name's import, with what a person puts in."""
    script = client.script.read_text()
    lines_match = _MARKED.search(script)
    assert lines_match, f"no lines are marked in {client.script.name}"
    name_match = re.search(r"= (?:new )?(\w+)\(", lines_match[1])
    assert name_match, lines_match[1]
    (line,) = (line for line in _IMPORT.findall(script) if re.search(rf"\b{name_match[1]}\b", line))
    if client.language == "python":
        line = f"{line.partition(' import ')[0]} import {name_match[1]}"
    lines = lines_match[1]
    for name, value in _GIVEN.items():
        lines = re.sub(name, value, lines)
    return f"```{'python' if client.language == 'python' else 'js'}\n{line}\n\n{lines}```"


def render_page(note: str) -> str:
    """The page `docs/clients.md`; `note` is the line at its top that says how it is made."""
    clients, results = load_clients(), load_results()
    lines = [
        "# Clients",
        note,
        "",
        "Find your client below, paste its lines, and put in your server's address, your key and, for `APP`, the id of",
        "your app. Each was run, unchanged, against a real server: [What was tried](#what-was-tried) says what worked,",
        "and at which version.",
        "",
        "Other clients that speak the same protocols work the same way:",
        "",
        "- **models**: OpenAI's wire format at `/v1`, or at `/v1/APP` for one app; Anthropic's at `/v1/messages`.",
        "  Take your model's name from `GET /v1/models`; `baobab/echo` is [built in](models.md#the-built-in-model).",
        "- **tools**: MCP at `/mcp`, with `?app_id=APP` for one app ([more](mcp.md#the-address-chooses-the-view)).",
        "- **tables**: PostgREST's grammar at `/v1/APP/data/TABLE` ([more](data.md)).",
        "",
        "## Lines to paste",
    ]
    for client in clients:
        lines += ["", f"### {client.title}", "", client.lines or read_lines(client)]
        lines += ["", client.note.strip()] if client.note else []
    lines += [
        "",
        "## Skills for coding agents",
        "",
        "The folder `skills/` of the repository teaches a coding agent what to do with this server: build an app,",
        "policies, debug a policy, an agent with an approval, retrieval. Each is a folder with a `SKILL.md`, and every",
        "call in it is run by a test. Copy them where your agent looks for skills, and connect the server as `baobab`:",
        "",
        "```sh",
        "mkdir -p ~/.claude/skills && cp -r skills/baobab-* ~/.claude/skills/   # Claude Code",
        "mkdir -p ~/.codex/skills && cp -r skills/baobab-* ~/.codex/skills/     # Codex",
        "```",
        "",
        "## What was tried",
        "",
        "`make clients` runs all clients and writes the day down. A star marks those that also run with every change",
        "(`make e2e`). An empty field means: not tried. The clients called the addresses of one app, `/v1/APP` and",
        "`/mcp?app_id=APP`; Anthropic's called the server's own address. Programs were started from their packages,",
        "not by `npx`.",
    ]
    interfaces: tuple[tuple[Interface, str], ...] = (
        ("models", "Models"),
        ("mcp", "Tools, over MCP"),
        ("tables", "Tables of an app"),
    )
    for interface, title in interfaces:
        lines += ["", f"### {title}", "", *_render_table(interface, clients, results)]
        lines += ["", *_render_provider_table(clients, results)] if interface == "models" else []
    left_out = load_left_out()
    if left_out:
        lines += ["", "## Not run", "", *(f"- {name}: {reason}" for name, reason in left_out.items())]
    return "\n".join(lines) + "\n"


def _render_table(interface: Interface, clients: list[Client], results: Mapping[str, Any]) -> Iterator[str]:
    checks = [check for check in CHECKS.values() if any(check.name in client.shows for client in clients)]
    checks = [check for check in checks if check.interface == interface]
    yield "| Client | Version | Last run | " + " | ".join(check.name for check in checks) + " |"
    yield "|---" * (len(checks) + 3) + "|"
    shown_clients = [client for client in clients if any(check.name in client.shows for check in checks)]
    for client in shown_clients:
        result = results.get(client.name, {"date": "", "checks": {}})
        cells = [{True: "yes", False: "no", None: ""}[result["checks"].get(check.name)] for check in checks]
        star = " ★" if client.weight == "light" else ""
        versions = ", ".join(f"`{package}` {version}" for package, version in client.packages.items())
        yield f"| {client.title}{star} | {versions} | {result['date']} | {' | '.join(cells)} |"
    yield ""
    yield from (f"- **{check.name}**: it {check.description}" for check in checks)
    for client in shown_clients:
        for check, reason in client.faults.items():
            if CHECKS[check].interface == interface:
                yield f"- {client.title}, {check}: {reason}"


def _render_provider_table(clients: list[Client], results: Mapping[str, Any]) -> Iterator[str]:
    checks = [check for check in CHECKS if any(check in client.provider_shows for client in clients)]
    wires = {"openai": "OpenAI", "anthropic": "Anthropic"}
    models = " and ".join(f"`{model}` of {wires[wire]}" for wire, model in PROVIDER_MODELS.items())
    yield "### Models of a provider"
    yield ""
    yield f"The table above was made with `baobab/echo`. These clients also ran on {models}."
    yield "A fake provider on the same machine answered for both, with scripted answers in their wire formats. If the"
    yield "provider speaks the client's wire format, the server has **relayed** the request and the answer; otherwise"
    yield "it has **translated** them."
    yield ""
    yield "| Client | Model | " + " | ".join(checks) + " |"
    yield "|---" * (len(checks) + 2) + "|"
    for client in clients:
        for kind, passes_by_check in results.get(client.name, {}).get("provider", {}).items():
            cells = [{True: "yes", False: "no", None: ""}[passes_by_check.get(check)] for check in checks]
            yield f"| {client.title} | `{client.models[kind]}`, {kind} | {' | '.join(cells)} |"
    yield ""
    further_checks = [CHECKS[check] for check in checks if not any(check in client.shows for client in clients)]
    yield from (f"- **{check.name}**: it {check.description}" for check in further_checks)
