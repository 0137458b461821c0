"""Marks of the app's own text, which the pages of a table, of keys and of files show and change.

An agent that reads what is marked has read no text from outside, so nobody is warned because of it.
"""

from baobab.http.console.page import Form
from baobab.http.console.pages import files, kv, table_rows
from baobab.http.console.visit import Visit


async def mark_table(visit: Visit) -> str:
    place = {"app_id": visit.parts["app"], "table": visit.parts["table"]}
    await visit.call("schema_own_text", **place, own=_is_own(visit))
    return f"{table_rows.PATH.format(**visit.parts)}#own-text"


async def mark_keys(visit: Visit) -> str:
    await _mark_beginning(visit, "kv_own_text")
    return f"{kv.PATH.format(**visit.parts)}#own-text"


async def mark_files(visit: Visit) -> str:
    await _mark_beginning(visit, "files_own_text")
    return f"{files.PATH.format(**visit.parts)}#own-text"


async def _mark_beginning(visit: Visit, tool: str) -> None:
    prefix = visit.form.get("own_prefix", "").strip()
    await visit.call(tool, app_id=visit.parts["app"], prefix=prefix, own=_is_own(visit))


def _is_own(visit: Visit) -> bool:
    return visit.form.get("own") == "yes"


FORMS = (
    Form(table_rows.PATH + "/own-text", mark_table),
    Form(kv.PATH + "/own-text", mark_keys),
    Form(files.PATH + "/own-text", mark_files),
)
