"""/console/settings: the installation's settings, and the problems with them."""

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit


async def show_settings(visit: Visit) -> Context:
    page = await visit.call("system_settings")
    changed_settings = [setting for setting in page["settings"] if not setting["is_default"]]
    default_settings = [setting for setting in page["settings"] if setting["is_default"]]
    installation = await visit.call("system_installation")
    return {
        "faults": page["faults"],
        "changed": changed_settings,
        "others": default_settings,
        "installation": installation,
        "is_any_dropped": any(each["dropped"] for each in installation["waiting"]),
    }


async def go_live(visit: Visit) -> str:
    await visit.call("system_go_live", waiting=visit.form.get("waiting") or None)
    return "/settings"


PAGES = (
    Page(
        "/settings",
        "Settings",
        "settings.html",
        show_settings,
        menu="Settings",
        tool="system_settings",
        group="Organisation",
        icon="sliders-horizontal",
        rank=90,
    ),
)
FORMS = (Form("/settings/live", go_live),)
