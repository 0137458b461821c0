"""Says in words what a run has read before it asks, and why whoever decides is warned."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.approvals.schemas import ForeignValue, Source, Warned
from baobab.tools.core.guard.escaping import escape_text

_LONGEST = 80
_CHECK = "That text comes from outside. Check that your own people want this, and not only what it asks for."
_FACTS = {
    "pays": "This pays, and the agent has read {source}.",
    "deletes": "This deletes or replaces something, and the agent has read {source}.",
    "rights": "This gives rights, and the agent has read {source}.",
    "other_person": "This writes to {target}, and the agent has read {source}.",
}
_UNNAMED = {"start": "what the run was started with", "conversation": "earlier messages of the conversation"}


def render_read(reading: Mapping[str, Any]) -> list[Source]:
    """Returns the sources as people know them, those from outside first."""
    sources: list[Source] = [{"text": _describe(source), "own": bool(source["own"])} for source in reading["read"]]
    if reading["more"]:
        sources.append({"text": f"{reading['more']} more", "own": False})
    return sources


def render_warning(reading: Mapping[str, Any], *, names_sources: bool) -> Warned | None:
    """Returns the warning that is due; None where none is. names_sources: False for those who see no stored data."""
    warning = reading["warning"]
    if warning is None:
        return None
    source = _describe(warning["source"]) if names_sources else "text from outside"
    values: list[ForeignValue] = [
        {
            "argument": value["argument"],
            "value": value["value"],
            "source": _describe(value["source"]) if names_sources else "text from outside",
        }
        for value in warning["values"]
    ]
    if warning["cause"] == "value":
        first = values[0]
        what = escape_text(first["argument"].rpartition(".")[2].replace("_", " ")) or "value"
        return {
            "cause": "value",
            "fact": f"The {what} “{_cut(first['value'])}” comes from {source}.",
            "reason": "It stands there only, and in none of your own data. Check it before you approve.",
            "values": values,
        }
    target = _describe(warning["target"]) if names_sources and "target" in warning else "somebody else"
    fact = _FACTS[warning["cause"]].format(source=source, target=target)
    return {"cause": warning["cause"], "fact": fact, "reason": _CHECK, "values": values}


def _describe(source: Mapping[str, Any]) -> str:
    """Says what a source is. What users have chosen stands in quotation marks or after `by`, on one line."""
    name, place = _cut(source.get("name") or ""), escape_text(source.get("place") or "")
    author = _cut(source.get("user_name") or "")
    match source["kind"]:
        case "input":
            return f"what {author or 'a user'} asked" if "user" in source else "what a visitor asked"
        case "start" | "conversation":
            return _UNNAMED[source["kind"]]
        case "row":
            return (f"“{name}” in {place}" if name else f"rows of {place}") + (f" by {author}" if author else "")
        case "key":
            return f"the key {name}"
        case "tool":
            return f"the answer of {name}" + (f" ({place})" if place else "")
    return (name if source["own"] else f"“{name}”") + (f" by {author}" if author else "")


def _cut(text: str) -> str:
    visible_text = escape_text(" ".join(text.split()))
    return visible_text if len(visible_text) <= _LONGEST else visible_text[: _LONGEST - 1] + "…"
