"""/console/apps/{app}/sign-in: how users sign in to an app: its settings, a preview of its page, and its providers."""

from typing import Any

from markupsafe import Markup
from pydantic import TypeAdapter, ValidationError

from baobab.http.console.app_page import read_app, refuse_field
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.http.login_page.page import render_preview
from baobab.tools.users.provider_kinds import BUILT_IN
from baobab.tools.users.tools.settings import Colour, LogoUrl

PATH = "/apps/{app}/sign-in"
_CHECKS: dict[str, TypeAdapter[str]] = {"colour": TypeAdapter(Colour), "logo_url": TypeAdapter(LogoUrl)}
_URLS = ("authorization_url", "token_url", "userinfo_url")
_METADATA = ("teamId", "keyId", "privateKey", "issuer", "jwks_url")
_SHOWN = 20


async def show_sign_in(visit: Visit) -> Context:
    app = await read_app(visit)
    settings = (await visit.call("users_settings_get", app_id=app["id"]))["settings"]
    providers = (await visit.call("users_providers_list", app_id=app["id"]))["configs"]
    hook_calls = (await visit.call("users_hook_calls", app_id=app["id"], limit=_SHOWN))["calls"]
    values = {
        "app": app,
        "settings": settings,
        "providers": providers,
        "kinds": list(BUILT_IN),
        "hook_calls": hook_calls,
    }
    return values | {"saved": "saved" in visit.query}


async def show_preview(visit: Visit) -> Context:
    """Returns the page as it would look with the typed settings. Settings that are not valid yet are left as they
    are.
    """
    app_id = visit.parts["app"]
    settings = (await visit.call("users_settings_get", app_id=app_id))["settings"]
    page = {**await visit.call("auth_page", app_id=app_id)}
    page |= {name: settings[name] for name in _CHECKS}
    for name, check in _CHECKS.items():
        try:
            if name in visit.query:
                page[name] = check.validate_python(visit.query[name]) if visit.query[name] else None
        except ValidationError:
            continue
    if visit.query:
        page["invite_only"] = "invite_only" in visit.query
    return {"html": Markup(render_preview(visit.registry, app_id, page))}  # noqa: S704 - a template has escaped it


async def save(visit: Visit) -> str:
    form = visit.form
    days = form.get("anonymous_days", "").strip()
    if days and not (days.isdecimal() and len(days) < 6):
        raise refuse_field("anonymous_days", "Type a number of days, or nothing for never.")
    changes: dict[str, Any] = {name: name in form for name in ("anonymous", "invite_only")}
    changes["second_factor"] = "required" if "second_factor" in form else "optional"
    changes["anonymous_days"] = int(days) if days else None
    changes |= {name: form.get(name, "").strip() or None for name in _CHECKS}
    await visit.call("users_settings_update", app_id=visit.parts["app"], **changes)
    return PATH.format(**visit.parts) + "?saved=1"


async def add_provider(visit: Visit) -> str:
    app_id, form = visit.parts["app"], visit.form
    provider = form.get("provider", "").strip()
    arguments: dict[str, Any] = {name: form.get(name, "").strip() for name in ("client_id", "client_secret")}
    arguments |= _read_given(visit, _URLS)
    if metadata := _read_given(visit, _METADATA):
        arguments["provider_metadata"] = metadata
    base = visit.registry.services.options.base_url
    callback = f"{base}/auth/{app_id}/oauth/{provider}/callback"
    await visit.call("users_providers_create", app_id=app_id, provider=provider, redirect_uris=[callback], **arguments)
    return PATH.format(**visit.parts) + "?saved=1"


async def change_provider(visit: Visit) -> str:
    """Changes the fields of a provider that were filled in; empty ones stay as they are."""
    changes: dict[str, Any] = _read_given(visit, ("client_id", "client_secret"))
    if metadata := _read_given(visit, _METADATA):
        changes["provider_metadata"] = metadata
    arguments = {"app_id": visit.parts["app"], "provider": visit.parts["provider"]}
    await visit.call("users_providers_update", **arguments, **changes)
    return PATH.format(app=visit.parts["app"]) + "?saved=1"


def _read_given(visit: Visit, names: tuple[str, ...]) -> dict[str, str]:
    """Returns the fields of these names that are not empty."""
    return {name: visit.form[name].strip() for name in names if visit.form.get(name, "").strip()}


async def switch_provider(visit: Visit) -> str:
    arguments: dict[str, Any] = {"provider": visit.parts["provider"], "enabled": visit.form.get("enabled") == "yes"}
    await visit.call("users_providers_update", app_id=visit.parts["app"], **arguments)
    return PATH.format(app=visit.parts["app"]) + "?saved=1"


async def delete_provider(visit: Visit) -> str:
    await visit.call("users_providers_delete", app_id=visit.parts["app"], provider=visit.parts["provider"])
    return PATH.format(app=visit.parts["app"])


PAGES = (
    Page(PATH, "Sign-in", "user_sign_in.html", show_sign_in, tab="Sign-in", group="People", icon="lock", rank=20),
    Page(PATH + "/preview", "Preview", "{{ html }}", show_preview, frame=True),
)
FORMS = (
    Form(PATH + "/save", save),
    Form(PATH + "/providers", add_provider),
    Form(PATH + "/providers/{provider}/change", change_provider),
    Form(PATH + "/providers/{provider}/switch", switch_provider),
    Form(PATH + "/providers/{provider}/delete", delete_provider),
)
