"""The pages of an app's users, of their providers and of how they sign in."""

import re
import time
from typing import Any

from baobab.tools.users.providers import find_row, open_account
from baobab.tools.users.totp import compute_code
from tests.http.console.test_runs import Runner
from tests.jobs import run_due_jobs

PASSWORD = "correct Horse 7!"
CALLBACK = re.compile(r"http\S+/oauth/google/callback")


async def sign_up(visitor: Runner, email: str, **further: Any) -> str:
    """A user of the app; returns the path of the page."""
    body = {"email": email, "password": PASSWORD, **further}
    response = await visitor.baobab.client.post(f"/auth/{visitor.app_id}/signup", json=body)
    assert response.status_code == 201, response.text
    return f"/console/apps/{visitor.app_id}/users/{response.json()['user']['id']}"


async def test_users_are_found_given_a_role_banned_signed_out_and_deleted(visitor: Runner) -> None:
    users = f"/console/apps/{visitor.app_id}/users"
    path = await sign_up(visitor, "ada@example.com", display_name="<script>alert(1)</script>")
    await sign_up(visitor, "ben@example.com")
    page_text = (await visitor.open(f"{users}?search=ADA")).text
    assert ("ada@example.com" in page_text, "ben@example.com" in page_text) == (True, False)
    assert "<script>alert" not in page_text
    login = {"email": "ada@example.com", "password": PASSWORD}
    await visitor.baobab.client.post(f"/auth/{visitor.app_id}/login", json=login)
    page = await visitor.open(path)
    assert "Sign out everywhere" in page.text
    assert (await visitor.send(f"{path}/role", page, role="editor")).status_code == 303
    assert (await visitor.send(f"{path}/sign-out", page)).status_code == 303
    assert (await visitor.send(f"{path}/ban", page, reason="spam")).status_code == 303
    page = await visitor.open(path)
    assert ("not signed in anywhere" in page.text, "spam" in page.text, 'value="editor"' in page.text) == (
        True,
        True,
        True,
    )
    refusal = await visitor.baobab.client.post(f"/auth/{visitor.app_id}/login", json=login)
    assert refusal.status_code == 403
    assert (await visitor.send(f"{path}/unban", page)).status_code == 303
    assert (await visitor.send(f"{path}/second-factor", page)).status_code == 303
    assert (await visitor.send(f"{path}/delete", page)).status_code == 303
    assert (await visitor.baobab.client.get(path, headers=visitor.browser)).status_code == 404


async def test_one_session_is_ended_and_the_factors_of_a_user_are_shown(visitor: Runner) -> None:
    path = await sign_up(visitor, "ada@example.com")
    login, client = {"email": "ada@example.com", "password": PASSWORD}, visitor.baobab.client
    root = f"/auth/{visitor.app_id}"
    signed_in = [(await client.post(f"{root}/login", json=login)).json() for _ in range(2)]
    bearers = [{"authorization": f"Bearer {each['access_token']}"} for each in signed_in]
    secret = (await client.post(f"{root}/totp", headers=bearers[1])).json()["secret"]
    page = await visitor.open(path)
    assert "<dt>Second factor</dt><dd>none" in page.text
    code = {"code": compute_code(secret, int(time.time()) // 30)}
    assert (await client.post(f"{root}/totp/confirm", json=code, headers=bearers[1])).status_code == 200
    sessions = (await client.get(f"{root}/sessions", headers=bearers[0])).json()["sessions"]
    (first,) = [each["id"] for each in sessions if each["current"]]
    page = await visitor.open(path)
    assert "authenticator app, 10 recovery codes left" in page.text
    assert (await visitor.send(f"{path}/sessions/{first}/end", page)).status_code == 303
    assert [(await client.get(f"{root}/me", headers=each)).status_code for each in bearers] == [401, 200]
    assert (await visitor.send(f"{path}/sessions/{first}/end", page)).status_code == 404
    # The session of a user is not ended by way of another one.
    other = await sign_up(visitor, "ben@example.com")
    (remaining_session,) = (await client.get(f"{root}/sessions", headers=bearers[1])).json()["sessions"]
    assert (await visitor.send(f"{other}/sessions/{remaining_session['id']}/end", page)).status_code == 404
    assert (await client.get(f"{root}/me", headers=bearers[1])).status_code == 200


async def test_what_the_hook_is_told_is_shown_as_text(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/sign-in"
    assert "Nobody has signed in during the last week" in (await visitor.open(path)).text
    await sign_up(visitor, "ada@example.com", display_name="<script>alert(1)</script>")
    await run_due_jobs(visitor.baobab.application)
    page = (await visitor.open(path)).text
    assert ("ada@example.com" in page, "recorded" in page, "<script>alert" in page) == (True, True, False)


async def test_somebody_is_invited_and_the_invitation_taken_back(visitor: Runner) -> None:
    users = f"/console/apps/{visitor.app_id}/users"
    page = await visitor.open(users)
    assert "No users yet" in page.text
    assert (await visitor.send(f"{users}/invite", page, email="eve@example.com", role="editor")).status_code == 303
    page = await visitor.open(users)
    assert "eve@example.com" in page.text
    (revoke,) = re.findall(r'action="(/console[^"]+/revoke)"', page.text)
    assert (await visitor.send(revoke, page)).status_code == 303
    assert "eve@example.com" not in (await visitor.open(users)).text


async def test_settings_are_saved_and_the_preview_shows_what_is_typed_before(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/sign-in"
    page = await visitor.open(path)
    policy = page.headers["content-security-policy"]
    assert "frame-src 'self';" in policy
    preview_page = await visitor.open(
        f"{path}/preview?colour=%23ff8800&logo_url=https://cdn.example.com/l.png&invite_only=yes"
    )
    assert "--accent: #ff8800" in preview_page.text
    assert 'src="https://cdn.example.com/l.png"' in preview_page.text
    assert "Create an account" not in preview_page.text
    assert "<script" not in preview_page.text
    half = await visitor.open(f"{path}/preview?colour=%23ff&logo_url=javascript:alert(1)")
    assert ("--accent: #1d4ed8" in half.text, "javascript:" in half.text) == (True, False)
    # Nothing of it runs, whatever somebody has typed.
    policy = preview_page.headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none';")
    assert "script-src" not in policy
    assert "frame-ancestors 'self'" in policy
    form = {"invite_only": "yes", "second_factor": "required", "anonymous_days": "30", "colour": "#112233"}
    assert (await visitor.send(f"{path}/save", page, **form, logo_url="")).status_code == 303
    settings = f"/v1/{visitor.app_id}/auth/settings"
    saved_settings = (await visitor.baobab.client.get(settings, headers=visitor.baobab.owner)).json()["settings"]
    assert saved_settings == {
        "anonymous": False, "anonymous_days": 30, "invite_only": True, "second_factor": "required", "logo_url": None,
        "colour": "#112233",
    }  # fmt: skip
    assert (await visitor.send(f"{path}/save", page, colour="red")).status_code == 400
    assert (await visitor.send(f"{path}/save", page, anonymous_days="x")).status_code == 400
    assert "--accent: #112233" in (await visitor.open(f"{path}/preview")).text


async def test_a_provider_is_added_switched_off_and_removed_and_its_secret_is_never_shown(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/sign-in"
    page = await visitor.open(path)
    arguments = {"provider": "google", "client_id": "123.apps", "client_secret": "GOCSPX-hidden"}
    assert (await visitor.send(f"{path}/providers", page, **arguments)).status_code == 303
    page = await visitor.open(path)
    assert CALLBACK.search(page.text)
    assert "GOCSPX" not in page.text
    assert "Continue with Google" in (await visitor.open(f"{path}/preview")).text
    change = f"{path}/providers/google/change"
    assert (await visitor.send(change, page, client_secret="GOCSPX-newer", client_id="")).status_code == 303
    services = visitor.baobab.application.services
    async with services.regions["local"].database.reading() as connection:
        row = await find_row(connection.execute, visitor.app_id, "google")
    account = open_account(services.vault, row)
    assert (account.client_id, account.client_secret) == ("123.apps", "GOCSPX-newer")
    assert "GOCSPX" not in (await visitor.open(path)).text
    assert (await visitor.send(change, page, client_secret="", client_id="")).status_code == 400
    assert (await visitor.send(f"{path}/providers/google/switch", page, enabled="no")).status_code == 303
    assert "switched off" in (await visitor.open(path)).text
    assert (await visitor.send(f"{path}/providers/google/delete", page)).status_code == 303
    assert "None yet" in (await visitor.open(path)).text
    refusal = await visitor.send(f"{path}/providers", page, **{**arguments, "provider": "acme"})
    assert (refusal.status_code, "authorization_url" in refusal.text) == (400, True)
