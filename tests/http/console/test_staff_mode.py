"""The console of somebody who only approves, on a phone."""

import json

from sqlalchemy import update

from baobab.runtime.passwords import hash_password
from baobab.tools.core.auth.tables import accounts
from tests.conftest import Baobab
from tests.http.console.test_console import OWN
from tests.people import Person
from tests.tools.test_approvers import create_approver, open_desk

PASSWORD = "correct Horse 7!"


async def sign_in(baobab: Baobab, person: Person, back: str = "") -> tuple[dict[str, str], str]:
    """The headers of a browser in which a person has signed in, and where the sign-in led."""
    async with baobab.application.services.database.writing() as connection:
        values = {"password_hash": await hash_password(PASSWORD)}
        await connection.execute(update(accounts).where(accounts.c.id == person.id).values(values))
    baobab.client.cookies.clear()
    own = {**OWN, "origin": str(baobab.client.base_url).rstrip("/")}
    form = {"email": person.email, "password": PASSWORD, "back": back}
    answer = await baobab.client.post("/console/sign-in", data=form, headers=own)
    assert answer.status_code == 303, answer.text
    baobab.client.cookies.clear()
    return {**own, "cookie": answer.headers["set-cookie"].partition(";")[0]}, answer.headers["location"]


async def test_an_approver_has_the_inbox_the_call_notifications_and_the_own_devices(baobab: Baobab) -> None:
    app_id, approval_id = await open_desk(baobab)
    browser, location = await sign_in(baobab, await create_approver(baobab), f"/approvals/{approval_id}")
    # The link of a mail leads to its call, through the sign-in.
    assert location == f"/console/approvals/{approval_id}"
    for path in ("", f"/approvals/{approval_id}", "/notices", "/sessions"):
        page = await baobab.client.get(f"/console{path}", headers=browser)
        assert page.status_code == 200, (path, page.text)
    assert approval_id in (await baobab.client.get("/console", headers=browser)).text
    for path in ("/keys", f"/apps/{app_id}", f"/apps/{app_id}/tables"):
        assert (await baobab.client.get(f"/console{path}", headers=browser)).status_code == 403, path


async def test_a_phone_can_install_the_inbox(baobab: Baobab) -> None:
    page = await baobab.client.get("/console/sign-in")
    assert '<link rel="manifest" href="/console/assets/console.webmanifest?v=' in page.text
    assert "manifest-src 'self'" in page.headers["content-security-policy"]
    answer = await baobab.client.get("/console/assets/console.webmanifest")
    manifest = json.loads(answer.text)
    assert answer.headers["content-type"] == "application/manifest+json"
    assert (manifest["start_url"], manifest["scope"], manifest["display"]) == ("/console", "/console", "standalone")
    for icon in manifest["icons"]:
        picture = await baobab.client.get(icon["src"])
        assert (picture.headers["content-type"], picture.content[:4]) == ("image/png", b"\x89PNG")
    # The worker shows pushes and keeps no page.
    worker = await baobab.client.get("/console/assets/push.js")
    assert "fetch" not in worker.text
    assert "caches" not in worker.text
