"""People are told of what waits for them, once, where and when they want."""

import asyncio
import base64
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jwt
from joserfc.jwk import ECKey
from sqlalchemy import func, select, update

from baobab.tools.approvals.notices.tables import approval_notices, notice_messages
from tests.jobs import list_unfinished_jobs
from tests.people import create_person, get_first_organisation
from tests.tools.approvals.notices.conftest import (
    Delivery,
    NoticesInstallation,
    open_notices_installation,
    start_receiver,
)
from tests.tools.mail.test_delivery import Relay, open_relay


def sign(delivery: Delivery, secret: str) -> str:
    """The signature that standardwebhooks.com describes."""
    signed_bytes = f"{delivery.headers['webhook-id']}.{delivery.headers['webhook-timestamp']}.".encode() + delivery.body
    mac = hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), signed_bytes, "sha256")
    return "v1," + base64.b64encode(mac).decode()


async def test_a_webhook_names_the_call_and_its_page_and_is_signed(installation: NoticesInstallation) -> None:
    async with start_receiver() as receiver:
        secret = (await installation.add_channel("webhook", receiver.url))["secret"]
        approval_id = await installation.propose()
        await installation.settle()
    (delivery,) = receiver.deliveries
    assert delivery.headers["webhook-signature"] == sign(delivery, secret)
    (approval,) = delivery.payload["data"]["approvals"]
    assert delivery.payload["type"] == "approvals.waiting"
    assert (approval["id"], approval["tool"]) == (approval_id, "kv_incr")
    assert approval["url"].endswith(f"/console/approvals/{approval_id}")
    (message,) = await installation.list_messages()
    assert (message["status"], message["approval_ids"], message["id"]) == (
        "sent",
        [approval_id],
        delivery.headers["webhook-id"],
    )


async def test_a_receiver_that_refuses_is_asked_again_with_the_same_id(installation: NoticesInstallation) -> None:
    async with start_receiver(500, 503) as receiver:
        await installation.add_channel("webhook", receiver.url)
        await installation.propose()
        await installation.settle()
        await installation.pass_time(10)
        await installation.pass_time(60)
    ids = {(each.headers["webhook-id"], each.headers["idempotency-key"]) for each in receiver.deliveries}
    assert (len(receiver.deliveries), len(ids)) == (3, 1)
    assert [each["status"] for each in await installation.list_messages()] == ["sent"]


async def test_a_receiver_that_never_takes_it_is_given_up(installation: NoticesInstallation) -> None:
    async with start_receiver(*[500] * 20) as receiver:
        await installation.add_channel("webhook", receiver.url)
        await installation.propose()
        await installation.settle()
        for pause in (10, 60, 300, 1800, 3600, 3600):
            await installation.pass_time(pause)
    assert len(receiver.deliveries) == 6
    (message,) = await installation.list_messages()
    assert (message["status"], message["error"]) == ("failed", "It answered 500.")


async def test_nobody_is_told_of_what_was_decided_meanwhile(installation: NoticesInstallation) -> None:
    async with start_receiver(500) as receiver:
        await installation.add_channel("webhook", receiver.url)
        approval_id = await installation.propose()
        await installation.settle()
        await installation.request("POST", f"/v1/approvals/{approval_id}/reject", body={})
        await installation.pass_time(10)
    assert len(receiver.deliveries) == 1
    assert [each["status"] for each in await installation.list_messages()] == ["dropped"]


async def test_what_comes_within_a_minute_is_told_together(installation: NoticesInstallation) -> None:
    async with start_receiver() as receiver:
        await installation.add_channel("webhook", receiver.url)
        first = await installation.propose()
        await installation.settle()
        others = [await installation.propose() for _ in range(3)]
        await installation.settle()
        assert len(receiver.deliveries) == 1
        await installation.pass_time(60)
    approval_ids = [[one["id"] for one in each.payload["data"]["approvals"]] for each in receiver.deliveries]
    assert (approval_ids[0], sorted(approval_ids[1])) == ([first], sorted(others))


async def test_a_digest_gathers_what_comes_in_its_time(installation: NoticesInstallation) -> None:
    async with start_receiver() as receiver:
        await installation.add_channel("webhook", receiver.url)
        await installation.set(digest_minutes=30)
        for _ in range(3):
            await installation.propose()
            await installation.pass_time(120)
        assert receiver.deliveries == []
        await installation.pass_time(1800)
    (delivery,) = receiver.deliveries
    assert delivery.payload["data"]["count"] == 3


async def test_nothing_is_sent_in_quiet_hours(installation: NoticesInstallation) -> None:
    # The clock stands at 2027-01-15 08:00 UTC, which is 09:00 in Prague.
    async with start_receiver() as receiver:
        await installation.add_channel("slack", receiver.url)
        await installation.set(quiet={"begin": "22:00", "end": "09:30", "time_zone": "Europe/Prague"})
        await installation.propose()
        await installation.settle()
        await installation.pass_time(29 * 60)
        assert receiver.deliveries == []
        await installation.pass_time(60)
    assert len(receiver.deliveries) == 1


async def test_another_member_is_told_of_what_nobody_decided_in_time(installation: NoticesInstallation) -> None:
    ben = await create_person(installation.baobab, "ben", role="admin")
    async with start_receiver() as hers, start_receiver() as his:
        await installation.add_channel("webhook", hers.url)
        await installation.add_channel("webhook", his.url, ben)
        await installation.set(escalation={"after_minutes": 15, "account_id": ben.id})
        decided_id, undecided_id = await installation.propose(), await installation.propose()
        await installation.settle()
        await installation.request("POST", f"/v1/approvals/{decided_id}/reject", body={})
        assert his.deliveries == []
        await installation.pass_time(15 * 60)
    (delivery,) = his.deliveries
    assert [one["id"] for one in delivery.payload["data"]["approvals"]] == [undecided_id]


async def test_what_only_admins_may_decide_because_they_are_is_told_those_who_want_all(
    installation: NoticesInstallation,
) -> None:
    ben = await create_person(installation.baobab, "ben", role="admin")
    async with start_receiver() as receiver:
        await installation.add_channel("webhook", receiver.url, ben)
        await installation.propose()
        await installation.settle()
        assert receiver.deliveries == []
        await installation.set(ben, which="all")
        await installation.propose()
        await installation.settle()
    assert len(receiver.deliveries) == 1


async def test_members_who_may_not_decide_are_not_told_nor_others(installation: NoticesInstallation) -> None:
    member, stranger = (
        await create_person(installation.baobab, "carl", role="member"),
        await create_person(installation.baobab, "eve"),
    )
    async with start_receiver() as receiver:
        for person in (member, stranger):
            await installation.add_channel("webhook", receiver.url, person)
            await installation.set(person, which="all")
        await installation.propose()
        await installation.settle()
    assert receiver.deliveries == []
    answer = await installation.request(
        "PATCH", "/v1/notices", stranger, {"escalation": {"after_minutes": 1, "account_id": installation.ada.id}}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "NOTICE_SCHEDULE_UNCLEAR")


@pytest.mark.parametrize("kind", ["slack", "discord"])
async def test_a_chat_shows_what_proposers_wrote_as_plain_text(installation: NoticesInstallation, kind: str) -> None:
    async with start_receiver() as receiver:
        await installation.add_channel(kind, receiver.url)
        path = f"/v1/organizations/{await get_first_organisation(installation.baobab)}"
        body = {"name": "<!channel> **@everyone** [x](https://evil.example)"}
        answer = await installation.baobab.client.patch(path, json=body, headers=installation.agent)
        assert answer.status_code == 428, answer.text
        await installation.settle()
    payload = receiver.deliveries[0].payload
    if kind == "slack":
        assert payload["blocks"][0]["text"]["type"] == "plain_text"
        assert "<!channel>" not in payload["text"]
        assert "/console/approvals/" in payload["blocks"][1]["elements"][0]["url"]
    else:
        assert payload["allowed_mentions"] == {"parse": []}
        assert "**" not in payload["embeds"][0]["description"]
        assert "[x](" not in payload["embeds"][0]["description"]


async def leave_in_the_middle(installation: NoticesInstallation) -> None:
    """As a process that is killed after it has asked the receiver leaves a message: begun, and without an outcome."""
    values = {
        "status": "queued",
        "trying_since": installation.baobab.application.services.clock.now(),
        "finished_at": None,
    }
    services = installation.baobab.application.services
    async with services.database.writing_unit(lock=None) as unit:
        message_id = (await unit.execute(select(notice_messages.c.id))).scalar_one()
        await unit.execute(update(notice_messages).values(**values))
        await services.jobs.enqueue(unit, "notices_deliver", {"message_id": message_id})
    await installation.settle()


@pytest.mark.parametrize("kind", ["slack", "discord"])
async def test_a_chat_is_not_told_twice_when_a_server_ended_in_the_middle(
    installation: NoticesInstallation, kind: str
) -> None:
    async with start_receiver() as receiver:
        await installation.add_channel(kind, receiver.url)
        await installation.propose()
        await installation.settle()
        await leave_in_the_middle(installation)
    assert len(receiver.deliveries) == 1
    assert [each["status"] for each in await installation.list_messages()] == ["unknown"]


async def test_a_webhook_that_is_sent_again_after_a_crash_has_the_same_id(installation: NoticesInstallation) -> None:
    async with start_receiver() as receiver:
        await installation.add_channel("webhook", receiver.url)
        await installation.propose()
        await installation.settle()
        await leave_in_the_middle(installation)
    assert len({each.headers["webhook-id"] for each in receiver.deliveries}) == 1
    assert [each["status"] for each in await installation.list_messages()] == ["sent"]


async def test_jobs_that_are_made_twice_and_at_once_tell_a_person_once(installation: NoticesInstallation) -> None:
    services = installation.baobab.application.services
    async with start_receiver() as receiver:
        await installation.add_channel("slack", receiver.url)
        approvals = [await installation.propose() for _ in range(3)]
        async with services.database.writing_unit(lock=None) as unit:
            for approval_id in approvals * 2:
                await services.jobs.enqueue(unit, "notices_plan", {"approval_id": approval_id})
                await services.jobs.enqueue(unit, "notices_send", {"account_id": installation.ada.id})
        await installation.settle()
        await installation.pass_time(60)
        await installation.pass_time(60)
    told_ids = [approval for each in await installation.list_messages() for approval in each["approval_ids"]]
    assert sorted(told_ids) == sorted(approvals)
    assert len(receiver.deliveries) == len(await installation.list_messages())
    async with services.database.reading() as connection:
        states = select(approval_notices.c.state, func.count()).group_by(approval_notices.c.state)
        assert [tuple(row) for row in await connection.execute(states)] == [("told", 3)]


class Subscription:
    """A browser's end of web push."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.public = self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.auth = b"sixteen bytes ok"
        self.keys = {"p256dh": self.encode(self.public), "auth": self.encode(self.auth)}

    @staticmethod
    def encode(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    def decrypt(self, body: bytes) -> dict[str, Any]:
        """As RFC 8291 has it."""
        salt, sender, ciphertext = body[:16], body[21 : 21 + body[20]], body[21 + body[20] :]
        peer = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        shared_secret = self.private.exchange(ec.ECDH(), peer)
        secret = HKDF(hashes.SHA256(), 32, self.auth, b"WebPush: info\0" + self.public + sender).derive(shared_secret)
        key = HKDF(hashes.SHA256(), 16, salt, b"Content-Encoding: aes128gcm\0").derive(secret)
        nonce = HKDF(hashes.SHA256(), 12, salt, b"Content-Encoding: nonce\0").derive(secret)
        text = AESGCM(key).decrypt(nonce, ciphertext, None)
        assert text.endswith(b"\2")
        message: dict[str, Any] = json.loads(text[:-1])
        return message


async def test_a_browser_can_read_its_push_and_knows_who_sent_it(installation: NoticesInstallation) -> None:
    async with start_receiver() as receiver:
        browser = Subscription()
        await installation.add_channel("push", receiver.url, None, **browser.keys)
        approval_id = await installation.propose()
        await installation.settle()
    (delivery,) = receiver.deliveries
    message = browser.decrypt(delivery.body)
    assert (message["title"], message["url"].rpartition("/")[2]) == ("A call waits for your decision", approval_id)
    assert delivery.headers["content-encoding"] == "aes128gcm"
    assert len(delivery.headers["topic"]) == 32
    scheme, _, rest = delivery.headers["authorization"].partition(" ")
    token, key = (part.partition("=")[2] for part in rest.split(", "))
    push_key = (await installation.request("GET", "/v1/notices/push-key")).json()["key"]
    assert (scheme, key) == ("vapid", push_key)
    raw = base64.urlsafe_b64decode(key + "=")
    public: Any = {"kty": "EC", "crv": "P-256", "x": Subscription.encode(raw[1:33]), "y": Subscription.encode(raw[33:])}
    claims = jwt.decode(token, ECKey.import_key(public), algorithms=["ES256"]).claims
    assert claims["aud"] == receiver.url.removesuffix("/told")
    assert installation.clock.time() < claims["exp"] <= installation.clock.time() + 24 * 3600


async def test_what_a_person_is_warned_of_stands_first_in_a_push_and_in_a_webhook(
    installation: NoticesInstallation,
) -> None:
    async with start_receiver() as receiver, start_receiver() as other:
        browser = Subscription()
        await installation.add_channel("push", receiver.url, None, **browser.keys)
        await installation.add_channel("webhook", other.url)
        await installation.set(digest_minutes=15)
        approval_id = await installation.propose()
        fact = await installation.read_outside_text(approval_id)
        await installation.settle()
        await installation.pass_time(900)
        await installation.settle()
    assert browser.decrypt(receiver.deliveries[0].body)["body"].startswith(f"Check: {fact} “")
    assert other.deliveries[0].payload["data"]["approvals"][0]["warning"] == fact


async def test_a_browser_that_has_taken_its_subscription_back_is_forgotten(installation: NoticesInstallation) -> None:
    async with start_receiver(410) as receiver:
        await installation.add_channel("push", receiver.url, None, **Subscription().keys)
        await installation.propose()
        await installation.settle()
    assert (await installation.request("GET", "/v1/notices")).json()["channels"] == []


async def test_a_mail_address_is_told_once_it_is_confirmed(tmp_path: Path) -> None:
    relay = Relay()
    async with open_relay(relay) as port:
        mail = {"BAOBAB_SMTP_URL": f"smtp://127.0.0.1:{port}", "BAOBAB_MAIL_FROM": "baobab@example.org"}
        async with open_notices_installation(tmp_path / "data", **mail) as installation:
            body = {"kind": "email", "email": "ada@example.org"}
            channel = (await installation.request("POST", "/v1/notices/channels", body=body)).json()["channel"]
            await installation.propose()
            await installation.settle()
            (message,) = relay.mails
            code = message.get_body("plain").get_content().split()
            path = f"/v1/notices/channels/{channel['id']}/confirm"
            wrong = await installation.request("POST", path, body={"code": "AAAAAAAA"})
            assert wrong.json()["error"]["code"] == "NOTICE_CODE_WRONG"
            right = next(word for word in code if len(word) == 6 and word.isdecimal())
            as_typed = f" {right[:3]} {right[3:]}"
            assert (await installation.request("POST", path, body={"code": as_typed})).status_code == 200
            await installation.set(digest_minutes=15)
            ids = [await installation.propose() for _ in range(3)]
            fact = await installation.read_outside_text(ids[1])
            await installation.settle()
            await installation.pass_time(900)
            await installation.settle()
    assert relay.mails[1]["Subject"] == "3 calls wait for your decision"
    text = relay.mails[1].get_body("plain").get_content()
    assert text.count("23 h left: ") + text.count("24 h left: ") == 3
    html = relay.mails[1].get_body("html").get_content()
    assert text.replace("\r", "").count(f"\n  Check: {fact}\n") == 1
    assert f"<strong>Check: {fact}</strong>" in html
    for approval_id in ids:
        assert f"/console/approvals/{approval_id}" in text
        assert f'/console/approvals/{approval_id}"' in html


async def test_an_old_code_confirms_no_address(tmp_path: Path) -> None:
    relay = Relay()
    async with open_relay(relay) as port:
        mail = {"BAOBAB_SMTP_URL": f"smtp://127.0.0.1:{port}", "BAOBAB_MAIL_FROM": "baobab@example.org"}
        async with open_notices_installation(tmp_path / "data", **mail) as installation:
            body = {"kind": "email", "email": "ada@example.org"}
            channel = (await installation.request("POST", "/v1/notices/channels", body=body)).json()["channel"]
            await installation.settle()
            words = relay.mails[0].get_body("plain").get_content().split()
            right = next(word for word in words if len(word) == 6 and word.isdecimal())
            installation.clock.advance(25 * 3600)
            path = f"/v1/notices/channels/{channel['id']}/confirm"
            answer = await installation.request("POST", path, body={"code": right})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "NOTICE_CODE_WRONG")


async def test_nothing_is_enqueued_for_whoever_has_nowhere_to_be_told(installation: NoticesInstallation) -> None:
    assert (await installation.request("PATCH", "/v1/notices", body={"digest_minutes": 15})).status_code == 200
    await installation.propose()
    kinds = {job.kind for job in await list_unfinished_jobs(installation.baobab.application)}
    assert not kinds & {"notices_plan", "notices_send", "notices_escalate"}


async def test_without_a_mail_server_no_address_is_taken(installation: NoticesInstallation) -> None:
    body = {"kind": "email", "email": "ada@example.org"}
    answer = await installation.request("POST", "/v1/notices/channels", body=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "NOTICE_NO_MAIL_SERVER")


async def test_private_addresses_and_halves_of_channels_are_refused(tmp_path: Path) -> None:
    async with open_notices_installation(tmp_path / "data", BAOBAB_EGRESS_ALLOW="") as installation:
        refused_channels: list[tuple[dict[str, str], str]] = [
            ({"kind": "webhook", "url": "http://169.254.169.254/latest"}, "EGRESS_ADDRESS_REFUSED"),
            ({"kind": "slack", "url": "http://127.0.0.1:9999/x"}, "EGRESS_ADDRESS_REFUSED"),
            ({"kind": "webhook"}, "NOTICE_CHANNEL_UNCLEAR"),
            (
                {"kind": "push", "url": "https://example.com/x", "p256dh": "AAAA", "auth": "AAAA"},
                "NOTICE_CHANNEL_UNCLEAR",
            ),
            ({"kind": "push", "url": "https://example.com/x", "p256dh": "é", "auth": "A"}, "NOTICE_CHANNEL_UNCLEAR"),
        ]
        for body, code in refused_channels:
            answer = await installation.request("POST", "/v1/notices/channels", body=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), body


async def test_keys_with_limits_and_others_do_not_see_or_change_where_a_person_is_told(
    installation: NoticesInstallation,
) -> None:
    ben = await create_person(installation.baobab, "ben", role="owner")
    channel = (await installation.add_channel("slack", "https://hooks.example.com/services/T0/B0/secret"))["channel"]
    assert channel["address"] == "hooks.example.com"
    refusal = await installation.baobab.client.get("/v1/notices", headers=installation.agent)
    assert refusal.status_code == 403
    path = f"/v1/notices/channels/{channel['id']}"
    for method, at in (("DELETE", path), ("POST", f"{path}/test")):
        assert (await installation.request(method, at, ben)).status_code == 404
    assert (await installation.request("GET", "/v1/notices", ben)).json()["channels"] == []


async def test_a_test_says_what_the_receiver_says(installation: NoticesInstallation) -> None:
    async with start_receiver(204, 404) as receiver:
        channel = (await installation.add_channel("slack", receiver.url))["channel"]
        path = f"/v1/notices/channels/{channel['id']}/test"
        answers = [(await installation.request("POST", path, body={})).json() for _ in range(2)]
    assert answers == [{"delivered": True, "answer": None}, {"delivered": False, "answer": "It answered 404."}]


async def test_an_account_has_a_bounded_number_of_channels(installation: NoticesInstallation) -> None:
    async def add() -> int:
        body = {"kind": "webhook", "url": "https://example.com/hook"}
        return (await installation.request("POST", "/v1/notices/channels", body=body)).status_code

    statuses = await asyncio.gather(*(add() for _ in range(13)))
    assert sorted(statuses) == [201] * 10 + [409] * 3
