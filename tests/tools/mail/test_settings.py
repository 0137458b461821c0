"""An app says how its mail looks, and may have a mail server of its own: encrypted, and never on a private address."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult

from tests.certificates import create_certificate
from tests.conftest import Baobab, open_baobab
from tests.jobs import run_due_jobs
from tests.servers import TIMEOUT_SECONDS
from tests.tools.mail.test_delivery import EMAIL, Relay, open_relay, read_outbox

PASSWORD = "relay-Secret-9"
HERE = {"BAOBAB_EGRESS_ALLOW": "127.0.0.0/8,::1/128"}


@contextlib.asynccontextmanager
async def open_secure_relay(relay: Relay, folder: Path, *, implicit: bool = False) -> AsyncIterator[int]:
    """Opens a relay that takes mail over STARTTLS with a password, or `implicit`: over TLS from the start."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*create_certificate("localhost", folder))
    loop = asyncio.get_running_loop()

    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        # Unhandled, so that aiosmtpd itself answers the refusal.
        return AuthResult(success=data.password == PASSWORD.encode(), handled=False)

    if implicit:
        server = await loop.create_server(lambda: SMTP(relay, loop=loop), "127.0.0.1", 0, ssl=context)
    else:
        options: dict[str, Any] = {"auth_required": True, "authenticator": authenticate}
        options |= {"tls_context": context, "require_starttls": True}
        server = await loop.create_server(lambda: SMTP(relay, loop=loop, **options), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def describe_server(port: int, **changes: Any) -> dict[str, Any]:
    server = {"host": "localhost", "port": port, "from_address": "hello@acme.example"}
    return server | {"username": "acme", "password": PASSWORD} | changes


async def change(baobab: Baobab, app: str, **changes: Any) -> Any:
    return await baobab.client.patch(f"/v1/{app}/auth/mail", headers=baobab.owner, json=changes)


async def send_test(baobab: Baobab, app: str) -> Any:
    return await baobab.client.post(f"/v1/{app}/auth/mail/test", headers=baobab.owner, json={"to": EMAIL})


@pytest.mark.own_installation
async def test_an_app_sends_through_its_own_server_over_starttls_with_its_own_sender(
    tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = Relay()
    async with open_secure_relay(relay, tmp_path) as port, open_baobab(tmp_path / "data", settings | HERE) as baobab:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        app = await baobab.create_app()
        looks = {"from_name": "Acme, Inc. <x>", "reply_to": "help@acme.example", "colour": "#1d4ed8"}
        response = await change(baobab, app, **looks, smtp=describe_server(port))
        assert response.status_code == 200
        assert PASSWORD not in response.text
        mail_settings = (await baobab.client.get(f"/v1/{app}/auth/mail", headers=baobab.owner)).json()["mail"]
        assert mail_settings == response.json()["mail"]
        assert (mail_settings["smtp"]["password_set"], mail_settings["smtp"]["tls"]) == (True, "starttls")
        await baobab.client.post(f"/auth/{app}/signup", json={"email": EMAIL, "password": "correct Horse 7!"})
        await run_due_jobs(baobab.application)
        (row,) = await read_outbox(baobab, app)
        assert (row["status"], row["error"]) == ("sent", None)
        body = (await send_test(baobab, app)).json()
    assert (body["delivered"], body["answer"]) == (True, "OK")
    mail, test = relay.mails
    (sender,) = mail["From"].addresses
    assert (sender.display_name, sender.addr_spec) == ("Acme, Inc. <x>", "hello@acme.example")
    assert mail["Reply-To"] == "help@acme.example"
    assert "#1d4ed8" in mail.get_body(("html",)).get_content()
    assert test["Subject"] == "A test mail from Acme, Inc. <x>"


@pytest.mark.own_installation
async def test_a_test_mail_tells_in_words_what_is_wrong(
    tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, other = Relay(), tmp_path / "other"
    other.mkdir()
    async with (
        open_secure_relay(relay, tmp_path) as port,
        open_secure_relay(relay, other, implicit=True) as strange_port,
        open_relay(relay) as clear_port,
        open_baobab(tmp_path / "data", settings | HERE) as baobab,
    ):
        app = await baobab.create_app()
        no_server = await send_test(baobab, app)
        assert no_server.json() == {**no_server.json(), "delivered": False, "server": None}
        await change(baobab, app, smtp=describe_server(strange_port, tls="tls"))
        strange = (await send_test(baobab, app)).json()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        await change(baobab, app, smtp=describe_server(port, password="wrong"))
        wrong = (await send_test(baobab, app)).json()
        await change(baobab, app, smtp=describe_server(clear_port))
        in_clear = (await send_test(baobab, app)).json()
    assert relay.mails == []
    assert not any(result["delivered"] for result in (strange, wrong, in_clear))
    assert "the server refuses the user name and password: 535" in wrong["answer"]
    assert "certificate" in strange["answer"]
    assert "STARTTLS" in in_clear["answer"]


@pytest.mark.own_installation
async def test_a_server_on_a_private_address_is_refused(tmp_path: Path, settings: dict[str, str]) -> None:
    relay = Relay()
    async with open_secure_relay(relay, tmp_path) as port, open_baobab(tmp_path / "data", settings) as baobab:
        app = await baobab.create_app()
        literal = await change(baobab, app, smtp=describe_server(port, host="127.0.0.1"))
        assert (literal.status_code, literal.json()["error"]["code"]) == (400, "EGRESS_ADDRESS_REFUSED")
        assert (await change(baobab, app, smtp=describe_server(6379))).status_code == 400
        # Where a name leads is seen when the mail is sent, each time anew.
        assert (await change(baobab, app, smtp=describe_server(port))).status_code == 200
        body = (await send_test(baobab, app)).json()
        await baobab.client.post(f"/auth/{app}/signup", json={"email": EMAIL, "password": "correct Horse 7!"})
        await run_due_jobs(baobab.application)
        (row,) = await read_outbox(baobab, app)
    assert not body["delivered"]
    assert body["answer"].startswith("the server's address is refused")
    assert row["status"] == "failed"
    assert relay.mails == []


async def test_a_server_is_given_as_a_whole_so_that_a_password_goes_nowhere_else(baobab: Baobab) -> None:
    app = await baobab.create_app()
    assert (await change(baobab, app, smtp=describe_server(587))).status_code == 200
    response = await change(baobab, app, smtp={"host": "other.example.com", "from_address": "a@acme.example"})
    assert (response.json()["mail"]["smtp"]["password_set"], response.json()["mail"]["smtp"]["port"]) == (False, 587)
    half = await change(baobab, app, smtp={"host": "a.example.com", "from_address": "a@b.example", "username": "a"})
    assert (half.status_code, half.json()["error"]["code"]) == (400, "VALIDATION_MISSING_FIELD")
    assert (await change(baobab, app, smtp=None)).json()["mail"]["smtp"] is None
    assert (await change(baobab, app)).status_code == 400


@pytest.mark.parametrize(
    "changes",
    [
        {"from_name": "Acme\r\nBcc: all@example.com"},
        {"reply_to": "a@b.example\r\nBcc: all@example.com"},
        {"reply_to": "a@b.example, c@d.example"},
        {"colour": "red;background:url(//x)"},
        {"smtp": {"host": "a b", "from_address": "a@b.example"}},
        {"smtp": {"host": "a.example", "from_address": "a@b.example\n"}},
        {"smtp": {"host": "a.example", "from_address": "a@b.example", "tls": "none"}},
    ],
)
async def test_what_could_end_a_header_or_a_style_is_refused(baobab: Baobab, changes: dict[str, Any]) -> None:
    app = await baobab.create_app()
    refusal = await change(baobab, app, **changes)
    assert 400 <= refusal.status_code < 500
    assert (await baobab.client.get(f"/v1/{app}/auth/mail", headers=baobab.owner)).json()["mail"]["smtp"] is None


async def test_a_name_in_a_mail_is_text(baobab: Baobab) -> None:
    app = await baobab.create_app()
    await change(baobab, app, from_name="<b>Acme</b> {{ code }}")
    await baobab.client.post(f"/auth/{app}/signup", json={"email": EMAIL, "password": "correct Horse 7!"})
    (row,) = await read_outbox(baobab, app)
    assert row["subject"] == "Confirm your address for <b>Acme</b> {{ code }}"
    whole = (await baobab.client.get(f"/v1/{app}/auth/outbox/{row['id']}", headers=baobab.owner)).json()["mail"]
    assert "&lt;b&gt;Acme&lt;/b&gt; {{ code }}" in whole["html"]


@pytest.mark.own_installation
async def test_a_mail_whose_server_is_taken_away_is_read_in_the_outbox(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    relay = Relay("451 come again")
    async with open_baobab(tmp_path, settings) as baobab:
        app = await baobab.create_app()
        await change(baobab, app, smtp=describe_server(587, host="smtp.invalid"))
        assert (await sign_up_in(baobab, app))["status"] == "queued"
        await change(baobab, app, smtp=None)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (row := (await read_outbox(baobab, app))[0])["status"] != "outbox":
                await asyncio.sleep(0.05)
    assert (row["text"] is not None, relay.mails) == (True, [])


async def sign_up_in(baobab: Baobab, app: str) -> Any:
    await baobab.client.post(f"/auth/{app}/signup", json={"email": EMAIL, "password": "correct Horse 7!"})
    (row,) = await read_outbox(baobab, app)
    return row
