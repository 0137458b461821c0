"""The page of clients, made from the matrix and from what its last whole run found."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from tests.clients.matrix import CHECKS, PROVIDER_MODELS, Client, load_clients, load_left_out, load_results


def clients_page(made: str) -> str:
    """The page `docs/clients.md`; `made` is the note at its top that says how it is made."""
    clients, results = load_clients(), load_results()
    lines = [
        "# Clients",
        made,
        "",
        "These clients were run, unchanged and at these versions, against a real server. Find yours, paste its lines,",
        "and put your server's address and your key in. Others that speak the same protocols work the same way:",
        "",
        "- **models**: the OpenAI wire at `/v1`, or at `/v1/APP` for one app; the Anthropic wire at `/v1/messages`.",
        "  Take your model's name from `GET /v1/models`; `baobab/echo` is [built in](models.md#the-built-in-model).",
        "- **tools**: MCP at `/mcp`, with `?app_id=APP` for one app ([more](mcp.md#the-address-chooses-the-view)).",
        "",
        "The first table of models was made with `baobab/echo`, the second with models of a provider.",
        "`make clients` runs them all, and notes the day. A star marks those that run with every change (`make e2e`).",
    ]
    for door, title in (("models", "Models"), ("mcp", "Tools, over MCP")):
        lines += ["", f"## {title}", "", *_table(door, clients, results)]
        lines += ["", *_provider_table(clients, results)] if door == "models" else []
    lines += ["", "## Lines to paste"]
    for client in clients:
        lines += ["", f"### {client.title}", "", client.lines]
        lines += ["", client.note] if client.note else []
    left_out = load_left_out()
    if left_out:
        lines += ["", "## Not run", "", *(f"- {name}: {reason}" for name, reason in left_out.items())]
    return "\n".join(lines) + "\n"


def _table(door: Literal["models", "mcp"], clients: list[Client], found: Mapping[str, Any]) -> Iterator[str]:
    checks = [check for check in CHECKS.values() if any(check.name in client.shows for client in clients)]
    checks = [check for check in checks if check.door == door]
    yield "| Client | Version | Last run | " + " | ".join(check.name for check in checks) + " |"
    yield "|---" * (len(checks) + 3) + "|"
    shown = [client for client in clients if any(check.name in client.shows for check in checks)]
    for client in shown:
        result = found.get(client.name, {"date": "", "checks": {}})
        cells = [{True: "yes", False: "no", None: ""}[result["checks"].get(check.name)] for check in checks]
        star = " ★" if client.weight == "light" else ""
        versions = ", ".join(f"`{package}` {version}" for package, version in client.packages.items())
        yield f"| {client.title}{star} | {versions} | {result['date']} | {' | '.join(cells)} |"
    yield ""
    yield "An empty field: not tried."
    yield ""
    yield from (f"- **{check.name}**: it {check.description}" for check in checks)
    for client in shown:
        for check, reason in client.faults.items():
            if CHECKS[check].door == door:
                yield f"- {client.title}, {check}: {reason}"


def _provider_table(clients: list[Client], found: Mapping[str, Any]) -> Iterator[str]:
    checks = [check for check in CHECKS if any(check in client.provider_shows for client in clients)]
    wires = {"openai": "OpenAI", "anthropic": "Anthropic"}
    models = " and ".join(f"`{model}` of {wires[wire]}" for wire, model in PROVIDER_MODELS.items())
    yield "### Models of a provider"
    yield ""
    yield f"These clients also ran on {models}. A fake provider on the same machine answered for both: on their wires,"
    yield "but with scripted answers. A model whose provider speaks the client's wire is **relayed**; for another the"
    yield "server has **translated** the request and the answer."
    yield ""
    yield "| Client | Model | " + " | ".join(checks) + " |"
    yield "|---" * (len(checks) + 2) + "|"
    for client in clients:
        for kind, shown in found.get(client.name, {}).get("provider", {}).items():
            cells = [{True: "yes", False: "no", None: ""}[shown.get(check)] for check in checks]
            yield f"| {client.title} | `{client.models[kind]}`, {kind} | {' | '.join(cells)} |"
    yield ""
    added = [CHECKS[check] for check in checks if not any(check in client.shows for client in clients)]
    yield from (f"- **{check.name}**: it {check.description}" for check in added)
