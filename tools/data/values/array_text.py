"""Reads an array in the notation of Postgres, such as `{a,"b c",NULL}`."""

from baobab.tools.core import BadRequest


def parse_array(text: str, column: str) -> list[str | None]:
    """Returns the items of an array as texts, and None for each NULL. Raises BadRequest, which names the column."""
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        raise BadRequest(f"`{column}`: an array is written `{{a,b}}`.")
    items: list[str | None] = []
    index, inner = 0, text[1:-1]
    while index < len(inner):
        if inner[index] == '"':
            item, index = _read_quoted(inner, index + 1)
            items.append(item)
        else:
            end = inner.find(",", index)
            end = len(inner) if end < 0 else end
            plain = inner[index:end].strip()
            items.append(None if plain.upper() == "NULL" else plain)
            index = end
        index += 1
    return items


def _read_quoted(text: str, index: int) -> tuple[str, int]:
    parts: list[str] = []
    while index < len(text) and text[index] != '"':
        if text[index] == "\\" and index + 1 < len(text):
            index += 1
        parts.append(text[index])
        index += 1
    return "".join(parts), index + 1
