"""/console/sessions: where this person is signed in."""

from baobab.http.console.app_page import parse_object
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.runtime.passkeys import PasskeysUnavailable
from baobab.tools.console.errors import ConsoleSignInTooOld
from baobab.tools.core.errors import Conflict


async def show_sessions(visit: Visit) -> Context:
    by_key = visit.session.caller.key_id is not None
    page = {**await visit.call("console_sessions_list"), "by_key": by_key, "is_recent": True}
    page |= {"passkeys": [], "begun": None}
    if not by_key:
        page |= await visit.call("console_passkeys_list")
        try:
            page["begun"] = await visit.call("console_passkey_begin", session_id=visit.session.id)
        except ConsoleSignInTooOld:
            page["is_recent"] = False
        except (PasskeysUnavailable, Conflict):
            pass
    return page


async def add_passkey(visit: Visit) -> str:
    credential = parse_object(visit.form.get("credential", ""), "passkey") or {}
    name = visit.form.get("name", "")[:100] or "Passkey"
    state = visit.form.get("state", "")
    await visit.call("console_passkey_add", session_id=visit.session.id, state=state, credential=credential, name=name)
    return "/sessions"


async def remove_passkey(visit: Visit) -> str:
    await visit.call("console_passkey_remove", session_id=visit.session.id, passkey_id=visit.parts["id"])
    return "/sessions"


async def revoke(visit: Visit) -> str:
    await visit.call("console_session_revoke", session_id=visit.parts["id"])
    return "/sessions"


PAGES = (
    Page(
        "/sessions",
        "Signed-in devices",
        "sessions.html",
        show_sessions,
        menu="Signed-in devices",
        group="Account",
        icon="monitor-smartphone",
        for_approvers=True,
    ),
)
FORMS = (
    Form("/sessions/{id}/revoke", revoke),
    Form("/sessions/passkeys", add_passkey),
    Form("/sessions/passkeys/{id}/remove", remove_passkey),
)
