"""llms.txt: what a language model must know to use this server well. Made from the registry, so it cannot be stale."""

from baobab.tools.registry import Registry

_TEXT = """\
# Baobab

> A backend for AI agents and the apps around them. Every capability is one tool with one name: call it over MCP
> at {base}/mcp, or over REST at the path given below. Same rules, same arguments, same errors.

Over MCP the list shows the most used tools: `search_tools` finds the others, `call_tool` calls them.
{base}/mcp?toolsets=kv,apps (or all), ?app_id=APP_ID and ?read_only=true show other lists.

Base address: {base}
API reference for people: {base}/docs; OpenAPI 3.1: {base}/openapi.json

## Quick start

1. Send your key with every request: `Authorization: Bearer bb_sk_...`
2. List your apps first (`apps_list`). If there is none, `POST {base}/init {{"name": "todo"}}` makes one: see `app_id`.
3. Store a value: `PUT {base}/v1/APP_ID/kv/greeting {{"value": "hello"}}`
4. Read it: `GET {base}/v1/APP_ID/kv/greeting` answers `{{"value": "hello"}}`

## Pattern: a counter that many callers raise

`POST {base}/v1/APP_ID/kv/visits/incr` is atomic; a missing counter starts at 0. Never read, add and write yourself.

## Pattern: change a value that others change too

Read it, then `POST {base}/v1/APP_ID/kv/KEY/cas {{"expected": OLD, "next": NEW}}`. `{{"swapped": false}}` means that
somebody was faster: read again and decide anew.

## Pattern: let the app's users read or write some keys

`PUT {base}/v1/APP_ID/kv/_expose/user:%7Buser.id%7D:** {{"read": "owner", "write": "owner"}}` gives each signed-in user
the keys under their own id. Without a rule nobody but you reaches a key.

## Errors

Every refusal says a `code`, a `message` and a `remediation`. Do what the remediation says before you try again.
The shape is `{{"error": {{"code", "message", "remediation", "documentation_url", "details"?}}}}`; the KV family answers
`{{"error": CODE, "message", "remediation"}}`. 429 carries `Retry-After` in seconds. All codes: {base}/docs/errors

## When a person must decide

`APPROVAL_REQUIRED` means that nothing has been done yet: tell your person what waits (`details.summary`) and where
they decide (`details.decide_at`). Then make the very same call again, with the same arguments: it answers the result,
which is told once. `APPROVAL_REJECTED` is final; do not look for a way around it.

## Good habits

- Answers of tools that make something carry `_meta.next_actions`: what usually comes next, and by which tool.
- Nothing is converted or dropped silently: an unknown field is an error that names the known ones.
- Deleting an app or flushing its keys cannot be undone; ask the person first.
- Mind the caps: `kv_stats` shows what is used and what is left.

## Tools

{tools}
"""


def guidance(registry: Registry, base: str) -> str:
    return _TEXT.format(base=base, tools="\n".join(_lines(registry)))


def _lines(registry: Registry) -> list[str]:
    lines = []
    for toolset in registry.toolsets:
        lines.append(f"### {toolset.name}: {toolset.description}")
        for tool in toolset.tools.values():
            route = f" `{tool.rest.method} {tool.rest.path}`" if tool.rest else ""
            lines.append(f"- {tool.name} ({tool.effect}){route}: {tool.summary}")
        lines.append("")
    return lines[:-1]
