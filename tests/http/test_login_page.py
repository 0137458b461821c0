"""The page on which users of an app sign in: forms, links of mails, and what other sites may try."""

import html
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from baobab.tools.users.totp import compute_code
from tests.conftest import ADDRESS, Baobab
from tests.jobs import run_due_jobs

PASSWORD = "correct Horse 7!"
EMAIL = "ada@example.com"
BACK = "http://localhost:3000/welcome?page=1"
OWN = {"origin": ADDRESS, "sec-fetch-site": "same-origin"}


@dataclass
class Visitor:
    """A browser at the page of an app. Each request must say where it may go from there."""

    baobab: Baobab
    app: str

    async def open(self, **query: str) -> Any:
        return await self.baobab.client.get(f"/auth/{self.app}/login-page", params=query)

    async def send(self, step: str, headers: Any = None, **fields: str) -> Any:
        form = {"step": step, **({} if "link" in fields else {"redirect_to": BACK}), **fields}
        path = f"/auth/{self.app}/login-page"
        return await self.baobab.client.post(path, data=form, headers=OWN if headers is None else headers)

    async def sign_up(self, **fields: str) -> None:
        """Signs up, and confirms the address later."""
        page = await self.send("sign-up", email=EMAIL, password=PASSWORD, **fields)
        assert "Confirm your address" in page.text, page.text
        await self.read_tokens(await self.send("verify", email=EMAIL, later="yes", ticket=read_ticket(page.text)))

    async def is_verified(self) -> bool:
        path = f"/v1/{self.app}/admin/auth/users"
        (user,) = (await self.baobab.client.get(path, headers=self.baobab.owner)).json()["users"]
        return bool(user["email_verified"])

    async def read_mail(self) -> str:
        await run_due_jobs(self.baobab.application)
        outbox = await self.baobab.client.get(f"/v1/{self.app}/auth/outbox", headers=self.baobab.owner)
        return str(outbox.json()["mails"][0]["text"])

    async def read_code(self) -> str:
        match = re.search(r"^    (\d{6})$", await self.read_mail(), re.MULTILINE)
        assert match
        return match[1]

    async def read_link(self) -> str:
        match = re.search(
            rf"^{ADDRESS}/auth/{self.app}/login-page\?link=([\w-]+)$", await self.read_mail(), re.MULTILINE
        )
        assert match
        return match[1]

    async def read_tokens(self, answer: Any) -> dict[str, str]:
        """The tokens that a browser is sent on with; they must be good."""
        assert answer.status_code == 303, answer.text
        assert answer.headers["referrer-policy"] == "no-referrer"
        location = answer.headers["location"]
        assert location.startswith(f"{BACK}&access_token="), location
        tokens = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        headers = {"authorization": f"Bearer {tokens['access_token']}"}
        me = await self.baobab.client.get(f"/auth/{self.app}/me", headers=headers)
        assert me.json()["email"] == EMAIL
        return tokens


def read_ticket(page: str) -> str:
    match = re.search(r'name="ticket" value="([^"]+)"', page)
    assert match
    return match[1]


@pytest.fixture
async def visitor(baobab: Baobab) -> Visitor:
    return Visitor(baobab, await baobab.create_app())


async def test_a_user_signs_up_and_in_and_is_sent_on_with_tokens(visitor: Visitor) -> None:
    page = await visitor.open(redirect_to=BACK)
    assert page.status_code == 200, page.text
    assert "set-cookie" not in page.headers
    policy = page.headers["content-security-policy"]
    assert "form-action 'self' http://localhost:3000;" in policy
    assert policy.startswith("default-src 'none'; style-src 'nonce-")
    weak = await visitor.send("sign-up", email=EMAIL, password="short", display_name="Ada <L>")
    assert (weak.status_code, "too weak" in weak.text, EMAIL in weak.text) == (400, True, True)
    # What else was typed stays.
    assert 'value="Ada &lt;L&gt;"' in weak.text
    await visitor.sign_up(display_name="Ada")
    await visitor.read_tokens(await visitor.send("password", email=EMAIL, password=PASSWORD))
    wrong = await visitor.send("password", email=EMAIL, password="wrong")
    unknown = await visitor.send("password", email="eve@example.com", password="wrong")
    assert (wrong.status_code, unknown.status_code) == (401, 401)
    assert normalise(wrong.text) == normalise(unknown.text.replace("eve@", "ada@"))


async def test_a_mailed_code_signs_in_and_another_sets_a_new_password(visitor: Visitor) -> None:
    response = await visitor.send("mail", email=EMAIL)
    assert "a code is on its way" in response.text
    refusal = await visitor.send("code", email=EMAIL, code="wrong")
    assert (refusal.status_code, "Invalid sign-in code" in refusal.text) == (400, True)
    await visitor.read_tokens(await visitor.send("code", email=EMAIL, code=f" {await visitor.read_code()} "))
    answers = [await visitor.send("forgot", email=email) for email in (EMAIL, "eve@example.com")]
    assert normalise(answers[0].text) == normalise(answers[1].text.replace("eve@", "ada@"))
    code = await visitor.read_code()
    await visitor.read_tokens(await visitor.send("reset", email=EMAIL, code=code, password="Battery staple 9?"))


async def test_the_code_of_the_sign_up_mail_is_taken_by_the_page(
    visitor: Visitor,
) -> None:
    page = await visitor.send("sign-up", email=EMAIL, password=PASSWORD)
    ticket, link = read_ticket(page.text), await visitor.read_link()
    wrong = await visitor.send("verify", email=EMAIL, code="wrong", ticket=ticket)
    assert (wrong.status_code, "Invalid verification code" in wrong.text, read_ticket(wrong.text)) == (
        400,
        True,
        ticket,
    )
    # The link uses up nothing before somebody presses the button; whoever did not sign up has nothing to do.
    assert EMAIL in (await visitor.open(link=link)).text
    code = await visitor.read_code()
    await visitor.read_tokens(await visitor.send("verify", email=EMAIL, code=code, ticket=ticket))
    users = (
        await visitor.baobab.client.get(f"/v1/{visitor.app}/admin/auth/users", headers=visitor.baobab.owner)
    ).json()
    assert users["users"][0]["email_verified"] is True
    again = await visitor.send("verify_email", link=link)
    assert (again.status_code, "already used" in again.text) == (400, True)


async def test_the_link_of_the_sign_up_mail_confirms_the_address(visitor: Visitor) -> None:
    await visitor.sign_up()
    answer = await visitor.send("verify_email", link=await visitor.read_link())
    assert (answer.status_code, "Your address is confirmed" in answer.text) == (200, True)
    users = (
        await visitor.baobab.client.get(f"/v1/{visitor.app}/admin/auth/users", headers=visitor.baobab.owner)
    ).json()
    assert users["users"][0]["email_verified"] is True


async def test_a_page_that_does_not_know_where_to_lead_says_what_to_do_and_links_to_the_app(visitor: Visitor) -> None:
    page = await visitor.open()
    assert (page.status_code, "This link is incomplete" in page.text, 'class="provider go"' in page.text) == (
        400,
        True,
        False,
    )
    origins = {"allowed_origins": ["https://shop.example.com"]}
    response = await visitor.baobab.client.patch(
        f"/v1/{visitor.app}/config/cors", json=origins, headers=visitor.baobab.owner
    )
    assert response.status_code == 200, response.text
    assert 'href="https://shop.example.com"' in (await visitor.open()).text


async def test_opening_the_link_of_a_mail_uses_up_nothing_and_a_click_signs_in_once(visitor: Visitor) -> None:
    await visitor.send("mail", email=EMAIL)
    link = await visitor.read_link()
    for _ in range(3):
        page = await visitor.open(link=link, redirect_to="https://evil.example/")
        assert (page.status_code, EMAIL in page.text, "evil" in page.text) == (200, True, False)
    # The link leads where was asked for with the mail.
    await visitor.read_tokens(await visitor.send("magic_link", link=link, redirect_to="https://evil.example/"))
    again = await visitor.send("magic_link", link=link)
    assert (again.status_code, "already used" in again.text) == (400, True)


async def test_an_invitation_is_accepted_on_the_page(visitor: Visitor) -> None:
    path, body = f"/v1/{visitor.app}/admin/auth/users/invite", {"email": EMAIL, "role": "editor"}
    await visitor.baobab.client.patch(
        f"/v1/{visitor.app}/auth/settings", json={"invite_only": True}, headers=visitor.baobab.owner
    )
    assert "Create an account" not in (await visitor.open(redirect_to=BACK)).text
    assert (await visitor.send("sign-up", email=EMAIL, password=PASSWORD)).status_code == 403
    for further in ({}, {"redirect_to": BACK}):
        response = await visitor.baobab.client.post(path, json=body | further, headers=visitor.baobab.owner)
        assert response.status_code == 201, response.text
        link = await visitor.read_link()
        assert "You are invited" in (await visitor.open(link=link)).text
        answer = await visitor.send("app_invitation", link=link, password=PASSWORD)
        if further:
            await visitor.read_tokens(answer)
        else:
            assert (answer.status_code, "You have joined" in answer.text) == (200, True)
            user = (await visitor.baobab.client.get(f"{path[:-7]}", headers=visitor.baobab.owner)).json()["users"][0]
            await visitor.baobab.client.delete(f"{path[:-7]}/{user['id']}", headers=visitor.baobab.owner)


@pytest.mark.parametrize(
    "redirect_to",
    [
        "https://evil.example/",
        "//evil.example/",
        "javascript:alert(1)",
        "http://localhost@evil.example/",
        "http://localhost:3000\\@evil.example",
        "http://localhost.evil.example/",
        "",
    ],
)
async def test_the_page_leads_to_no_other_site(visitor: Visitor, redirect_to: str) -> None:
    response = await visitor.open(redirect_to=redirect_to)
    sent_response = await visitor.send("sign-up", email=EMAIL, password=PASSWORD, redirect_to=redirect_to)
    assert (response.status_code, sent_response.status_code) == (400, 400)
    assert "<form" not in response.text
    users = await visitor.baobab.client.get(f"/v1/{visitor.app}/admin/auth/users", headers=visitor.baobab.owner)
    assert users.json()["users"] == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": ADDRESS},
    ],
)
async def test_a_form_of_another_site_signs_nobody_in(visitor: Visitor, headers: dict[str, str]) -> None:
    await visitor.send("sign-up", email=EMAIL, password=PASSWORD)
    refusal = await visitor.send("password", headers, email=EMAIL, password=PASSWORD)
    assert refusal.status_code == 403
    assert "location" not in refusal.headers


async def test_a_link_of_another_app_is_none_and_an_unknown_app_has_no_page(visitor: Visitor) -> None:
    await visitor.send("mail", email=EMAIL)
    link = await visitor.read_link()
    other = Visitor(visitor.baobab, await visitor.baobab.create_app())
    assert (await other.open(link=link)).status_code == 400
    assert (await other.send("magic_link", link=link)).status_code == 400
    nowhere = await Visitor(visitor.baobab, "app_nowhere").open(redirect_to=BACK)
    assert (nowhere.status_code, "<form" in nowhere.text) == (404, False)


async def test_the_page_looks_as_the_app_says_and_shows_hostile_text_as_text(visitor: Visitor) -> None:
    looks = {"colour": "#ffcc00", "logo_url": "https://cdn.example.com/logo.png"}
    path = f"/v1/{visitor.app}/auth/settings"
    assert (await visitor.baobab.client.patch(path, json=looks, headers=visitor.baobab.owner)).is_success
    page = await visitor.open(redirect_to=BACK)
    assert "img-src data: https://cdn.example.com;" in page.headers["content-security-policy"]
    assert "--accent: #ffcc00; --on-accent: #000000" in page.text
    for bad in (
        {"colour": "red;}"},
        {"logo_url": "https://x.example/; script-src *"},
        {"logo_url": "http://x.example/"},
    ):
        assert (await visitor.baobab.client.patch(path, json=bad, headers=visitor.baobab.owner)).status_code == 400
    hostile = '"><script>alert(1)</script>@example.com'
    answer = await visitor.send("password", email=hostile, password="wrong")
    assert "<script>" not in answer.text
    assert html.escape(hostile, quote=False).replace('"', "&#34;") in answer.text


async def test_the_apps_own_host_sends_to_the_page_because_a_site_may_be_there(visitor: Visitor) -> None:
    app = (await visitor.baobab.client.get(f"/v1/{visitor.app}/config", headers=visitor.baobab.owner)).json()
    headers = {"host": f"{app['subdomain']}.localhost:8000"}
    sent_on = await visitor.baobab.client.get("/auth/login-page", params={"redirect_to": BACK}, headers=headers)
    assert sent_on.status_code == 307
    address = urlsplit(sent_on.headers["location"])
    assert (f"{address.scheme}://{address.netloc}", address.path) == (ADDRESS, f"/auth/{visitor.app}/login-page")
    page = await visitor.baobab.client.get(sent_on.headers["location"])
    assert page.status_code == 200, page.text


async def test_limits_count_each_visitor(visitor: Visitor) -> None:
    statuses = [(await visitor.send("mail", email=f"u{number}@example.com")).status_code for number in range(6)]
    assert statuses == [200] * 5 + [429]


def normalise(text: str) -> str:
    return re.sub(r'nonce="[^"]*"', "", text)


async def test_the_page_asks_for_the_second_factor_and_sets_one_up_for_who_is_invited(visitor: Visitor) -> None:
    baobab, app = visitor.baobab, visitor.app
    settings = f"/v1/{app}/auth/settings"
    await baobab.client.patch(settings, json={"second_factor": "required"}, headers=baobab.owner)
    body = {"email": EMAIL, "redirect_to": BACK}
    await baobab.client.post(f"/v1/{app}/admin/auth/users/invite", json=body, headers=baobab.owner)
    set_up = await visitor.send("app_invitation", link=await visitor.read_link(), password=PASSWORD)
    assert set_up.status_code == 200, set_up.text
    fields = read_fields(set_up.text)
    assert "link" not in fields
    secret = parse_qs(urlsplit(fields["uri"]).query)["secret"][0]
    wrong = await visitor.send(**{**fields, "code": "000000"})
    assert (wrong.status_code, read_fields(wrong.text)["uri"]) == (400, fields["uri"])
    response = await visitor.send(**{**fields, "code": compute_now(visitor, secret)})
    codes = re.findall(r"<li><code>([a-z0-9-]+)</code>", response.text)
    assert len(codes) == 10
    assert f'href="{BACK}&amp;access_token=' in response.text

    password_response = await visitor.send("password", email=EMAIL, password=PASSWORD)
    fields = read_fields(password_response.text)
    refusal = await visitor.send(**{**fields, "code": "nothing"})
    assert refusal.status_code == 400
    assert read_fields(refusal.text)["challenge"] == fields["challenge"]
    await visitor.read_tokens(await visitor.send(**{**fields, "code": codes[0]}))
    # A sign-in that is over is begun anew.
    over = await visitor.send(**{**fields, "code": codes[1]})
    assert (over.status_code, "This sign-in has ended" in over.text) == (401, True)


async def test_a_challenge_in_the_address_is_answered_on_the_page(visitor: Visitor) -> None:
    baobab, app = visitor.baobab, visitor.app
    await visitor.send("sign-up", email=EMAIL, password=PASSWORD)
    settings = f"/v1/{app}/auth/settings"
    await baobab.client.patch(settings, json={"second_factor": "required"}, headers=baobab.owner)
    login = {"email": EMAIL, "password": PASSWORD}
    challenge = (await baobab.client.post(f"/auth/{app}/login", json=login)).json()["challenge"]
    page = await visitor.open(challenge=challenge, redirect_to=BACK)
    assert "otpauth:" in page.text
    # The only script is the page's own, which makes a passkey.
    assert "script-src 'nonce-" in page.headers["content-security-policy"]
    unknown = await visitor.open(challenge="bb_2f_no", redirect_to=BACK)
    assert unknown.status_code == 401


@pytest.mark.parametrize(
    ("step", "fields"),
    [
        ("passkey", {"state": "x", "credential": "{"}),
        ("passkey", {"state": "x", "credential": "[" * 10_000}),
        ("passkey", {"state": "x", "credential": "7"}),
        ("passkey", {}),
        ("register", {"ticket": "v1.x.y"}),
        ("offer", {}),
        ("second-factor", {}),
        ("second-factor", {"challenge": "x" * 200, "code": "1"}),
        ("enrol", {"challenge": "x", "uri": "otpauth://" + "x" * 9000, "code": "1"}),
        ("enrol", {"challenge": "x", "uri": "javascript:", "code": "1"}),
    ],
)
async def test_forms_of_the_second_step_that_nobody_was_shown_are_refused(
    visitor: Visitor, step: str, fields: dict[str, str]
) -> None:
    answer = await visitor.send(step, **fields)
    assert answer.status_code in (400, 401), answer.text
    assert 'role="alert"' in answer.text


async def test_the_page_runs_its_own_script_only_where_a_passkey_may_be_used(visitor: Visitor) -> None:
    page = await visitor.open(redirect_to=BACK)
    policy = page.headers["content-security-policy"]
    nonce = re.search(r"script-src 'nonce-([\w-]+)'; connect-src 'self';", policy)
    assert nonce
    assert page.text.count("<script") == page.text.count(f'<script nonce="{nonce[1]}">') == 1
    other = await visitor.open(view="forgot", redirect_to=BACK)
    assert "<script" not in other.text


def read_fields(page: str) -> dict[str, str]:
    """The hidden fields of a page's first form."""
    form = page[page.index("<form") :]
    matches = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form[: form.index("</form>")])
    return {name: html.unescape(value) for name, value in matches}


def compute_now(visitor: Visitor, secret: str) -> str:
    return compute_code(secret, int(visitor.baobab.application.services.clock.time()) // 30)
