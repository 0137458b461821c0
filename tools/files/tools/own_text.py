"""Tools that say which files hold the app's own texts."""

from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Rest, one_of
from baobab.tools.core.guard.own_prefixes import OwnPrefix, OwnPrefixes, list_prefixes, render_prefixes, set_prefix
from baobab.tools.files.tables import FREEZES, own_folders
from baobab.tools.files.toolset import files


@files.tool("GET /own-text", access=AppOwner(), effect="read")
async def files_own_text_list(call: Call, app_id: AppId) -> OwnPrefixes:
    """List the beginnings of names of files that are marked as the app's own text."""
    async with call.stores.database.reading() as connection:
        return render_prefixes(await list_prefixes(connection.execute, own_folders, app_id))


@files.tool(
    "PUT /own-text",
    access=AppOwner("admin"),
    effect="write",
    audit=Audit("storage.own_text", category="storage", resource="folder"),
    rest=Rest(examples={"prefix": "handbook/", "own": True}),
    guard=Guard(widens={"own": one_of([True])}),
)
async def files_own_text(call: Call, app_id: AppId, prefix: OwnPrefix, own: bool) -> OwnPrefixes:
    """Mark files as the app's own text, or end that: a run that reads them has read no text from outside.

    Files of users, and those that a run has stored after it had read text from outside, still count as such.

    own: whether these files are texts of those who run the app.
    """
    async with FREEZES.writing(call) as unit:
        await set_prefix(call, unit.execute, own_folders, prefix, own=own)
        return render_prefixes(await list_prefixes(unit.execute, own_folders, app_id))
