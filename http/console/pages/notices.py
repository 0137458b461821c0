"""/console/notices: the channels through which this person learns of what waits for them."""

from typing import Any

from baobab.http.console.app_page import refuse_field
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

_PATH = "/notices"
_DIGESTS = {0: "at once", 15: "every 15 minutes", 60: "every hour", 240: "every 4 hours", 1440: "once a day"}
_WHICH = {"mine": "my own agents and keys, and requests assigned to me", "all": "all that I may decide about"}
_KINDS = {"email": "E-mail", "webhook": "Webhook", "slack": "Slack", "discord": "Discord", "push": "This browser"}
_STATES = {
    "mailed": "handed to the mail server",
    "dropped": "decided before",
    "unknown": "not known whether it arrived",
}
_MESSAGES = 20


async def show_notices(visit: Visit) -> Context:
    names_by_account: dict[str, str] = {}
    for organisation in visit.session.organisations:
        if not visit.may("organisations_members", organisation["id"]):
            continue
        page = await visit.call("organisations_members", organisation["id"], organization_id=organisation["id"])
        names_by_account |= {each["account_id"]: f"{each['name']} ({each['email']})" for each in page["members"]}
    names_by_account.pop(visit.session.caller.account_id, None)
    messages = (await visit.call("notices_messages_list", limit=_MESSAGES))["messages"]
    return {
        "title": "Notices",
        **await visit.call("notices_get"),
        **await visit.call("notices_push_key"),
        "others": names_by_account,
        "messages": messages,
        "digests": _DIGESTS,
        "choices": _WHICH,
        "kinds": _KINDS,
        "states": _STATES,
        "saved": "saved" in visit.query,
        "asked": visit.query.get("channel", ""),
        "made": None,
        "tried": None,
    }


async def save(visit: Visit) -> str:
    form = visit.form
    settings: dict[str, Any] = {
        "which": form.get("which", "mine"),
        "digest_minutes": _read_number(form, "digest_minutes"),
    }
    begin, end = form.get("begin", ""), form.get("end", "")
    quiet = {"begin": begin, "end": end, "time_zone": form.get("time_zone", "").strip() or "UTC"}
    settings["quiet"] = quiet if begin and end else None
    account_id = form.get("other", "")
    after = {"after_minutes": _read_number(form, "after_minutes"), "account_id": account_id}
    settings["escalation"] = after if account_id else None
    await visit.call("notices_update", **settings)
    return f"{_PATH}?saved=1"


def _read_number(form: Any, name: str) -> int:
    text = form.get(name, "").strip()
    if not text.isdecimal() or len(text) > 5:
        raise refuse_field(name, "Type a number of minutes.")
    return int(text)


async def add(visit: Visit) -> str | Context:
    """Adds a channel. Only the answer to this form shows a webhook's secret."""
    names = ("name", "email", "url", "p256dh", "auth")
    target = {name: visit.form[name].strip() for name in names if visit.form.get(name, "").strip()}
    channel = await visit.call("notices_channel_add", kind=visit.form.get("kind", ""), **target)
    if channel["secret"] is None:
        return f"{_PATH}?channel={channel['channel']['id']}"
    return {**await show_notices(visit), "made": channel}


async def confirm(visit: Visit) -> str:
    await visit.call("notices_channel_confirm", channel_id=visit.parts["id"], code=visit.form.get("code", "").strip())
    return f"{_PATH}?saved=1"


async def remove(visit: Visit) -> str:
    await visit.call("notices_channel_remove", channel_id=visit.parts["id"])
    return _PATH


async def try_channel(visit: Visit) -> Context:
    result = await visit.call("notices_channel_test", channel_id=visit.parts["id"])
    return {**await show_notices(visit), "tried": result}


PAGES = (
    Page(
        _PATH,
        "Notifications",
        "notices.html",
        show_notices,
        menu="Notifications",
        group="Account",
        icon="bell",
        for_approvers=True,
    ),
)
FORMS = (
    Form(f"{_PATH}/save", save),
    Form(f"{_PATH}/channels", add, "notices.html"),
    Form(f"{_PATH}/channels/{{id}}/confirm", confirm),
    Form(f"{_PATH}/channels/{{id}}/remove", remove),
    Form(f"{_PATH}/channels/{{id}}/test", try_channel, "notices.html"),
)
