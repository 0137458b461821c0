"""Every error of meetings that the contract names, over REST and MCP."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from baobab.tools.billing.ledger.credits import Credits
from tests.clock import FixedClock
from tests.mcp_server.mcp_requests import read_refusal, send_message
from tests.people import create_key, create_person, get_first_organisation
from tests.tools.ai.meetings.conftest import MEETING, MeetingBaobab, open_meetings
from tests.tools.ai.meetings.fake_provider import KEY
from tests.tools.ai.meetings.fake_recall import SECRET, start_recall

UNKNOWN = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
NO_APP = "app_zzzzzzzzzzzz"
START: dict[str, Any] = {"meetingUrl": MEETING}
NOT_PERMITTED = "AUTH_INSUFFICIENT_PERMISSIONS"


@dataclass(frozen=True)
class Case:
    """A call that is refused. fields: what the error has beside its code; of a flat error, `error` is a sentence."""

    status: int
    kind: str
    code: str
    tool: str
    path: str = ""
    body: dict[str, Any] | None = None
    by: str = "owner"
    app: str | None = "own"
    server: str = "simulated"
    mcp_code: str = ""
    fields: tuple[str, ...] = ()
    flat: str = ""
    method: str = "POST"
    named: dict[str, Any] = field(default_factory=dict)
    """What MCP has as arguments and REST in the path."""


AUTHENTICATION, PERMISSION = "authentication_error", "permission_error"
BILLING, INVALID, API = "billing_error", "invalid_request_error", "api_error"
CASES = {
    "no header": Case(401, AUTHENTICATION, "missing_credentials", "meetings_start", body=START, by="nobody"),
    "no header at the gateway": Case(
        401, AUTHENTICATION, "missing_credentials", "gateway_meetings_start", body=START, by="nobody", app=None
    ),
    "a header that is none": Case(
        401, AUTHENTICATION, "missing_credentials", "meetings_start", body=START, by="garbled"
    ),
    "a header that is none at the gateway": Case(
        401, AUTHENTICATION, "missing_credentials", "gateway_meetings_start", body=START, by="garbled", app=None
    ),
    "revoked key": Case(401, AUTHENTICATION, "invalid_api_key", "meetings_start", body=START, by="revoked"),
    "revoked key at the gateway": Case(
        401, AUTHENTICATION, "invalid_api_key", "gateway_meetings_start", body=START, by="revoked", app=None
    ),
    "unknown key": Case(401, AUTHENTICATION, "invalid_api_key", "meetings_start", body=START, by="unknown"),
    "no scope": Case(
        403,
        PERMISSION,
        "insufficient_scope",
        "gateway_meetings_start",
        body=START,
        by="narrow",
        app=None,
        mcp_code=NOT_PERMITTED,
    ),
    "not the owner": Case(
        403,
        PERMISSION,
        "not_authorized",
        "meetings_start",
        body=START,
        by="stranger",
        mcp_code=NOT_PERMITTED,
    ),
    "no credits": Case(
        402,
        BILLING,
        "insufficient_credits",
        "meetings_start",
        body=START,
        server="poor",
        mcp_code="INSUFFICIENT_CREDITS",
        fields=("balance_usd", "credit_floor_usd"),
    ),
    "no credits at the gateway": Case(
        402,
        BILLING,
        "insufficient_credits",
        "gateway_meetings_start",
        body=START,
        app=None,
        server="poor",
        mcp_code="INSUFFICIENT_CREDITS",
        fields=("balance_usd", "credit_floor_usd"),
    ),
    "no such app": Case(
        404, INVALID, "app_not_found", "meetings_start", body=START, app="missing", mcp_code="APP_NOT_FOUND"
    ),
    "no such bot": Case(
        404, INVALID, "bot_not_found", "meetings_get", f"/{UNKNOWN}", method="GET", named={"bot_id": UNKNOWN}
    ),
    "no such bot at the gateway": Case(
        404,
        INVALID,
        "bot_not_found",
        "gateway_meetings_get",
        f"/{UNKNOWN}",
        method="GET",
        app=None,
        named={"bot_id": UNKNOWN},
    ),
    "a transcript that is not there": Case(
        404,
        INVALID,
        "bot_not_found",
        "meetings_transcript",
        f"/{UNKNOWN}/transcript",
        method="GET",
        named={"bot_id": UNKNOWN},
    ),
    "a length that no meeting has": Case(
        400,
        INVALID,
        "invalid_request",
        "meetings_estimate",
        "/_estimate?durationMinutes=1441",
        method="GET",
        named={"durationMinutes": 1441},
        mcp_code="VALIDATION_INVALID_INPUT",
        fields=("details",),
    ),
    "a page that is too long": Case(
        400,
        INVALID,
        "invalid_request",
        "meetings_list",
        "?limit=101",
        method="GET",
        named={"limit": 101},
        mcp_code="VALIDATION_INVALID_INPUT",
        fields=("details",),
    ),
    "a wrong body": Case(
        400,
        INVALID,
        "invalid_request",
        "meetings_start",
        body={**START, "recording": "mp3"},
        mcp_code="VALIDATION_INVALID_INPUT",
        fields=("details",),
    ),
    "reserved metadata": Case(
        400,
        INVALID,
        "invalid_request",
        "meetings_start",
        body={**START, "metadata": {"bb_x": "1"}},
        fields=("details",),
    ),
    "reserved metadata at the gateway": Case(
        400,
        INVALID,
        "invalid_request",
        "gateway_meetings_start",
        body={**START, "metadata": {"bb_x": "1"}},
        app=None,
        fields=("details",),
    ),
    "nothing to do": Case(
        400,
        INVALID,
        "invalid_request",
        "meetings_start",
        body={**START, "recording": False, "transcript": False},
    ),
    "no provider": Case(501, API, "provider_unavailable", "meetings_start", body=START, server="off"),
    "no provider at the gateway": Case(
        501, API, "provider_unavailable", "gateway_meetings_start", body=START, app=None, server="off"
    ),
    "usage of no app": Case(
        404,
        "",
        "",
        "meetings_usage",
        "/usage",
        method="GET",
        app="missing",
        flat="App not found",
        mcp_code="APP_NOT_FOUND",
    ),
    "usage of another's app": Case(
        403,
        "",
        "",
        "meetings_usage",
        "/usage",
        method="GET",
        by="stranger",
        flat="Not authorized",
        mcp_code=NOT_PERMITTED,
    ),
    "a wrong address for events": Case(
        400,
        "",
        "",
        "meetings_webhook_set",
        "/webhook",
        body={"forward_url": "ftp://example.com/"},
        method="PUT",
        flat="Invalid request",
        mcp_code="invalid_request",
        fields=("details",),
    ),
}


@contextlib.asynccontextmanager
async def open_server(kind: str, folder: Path) -> AsyncIterator[MeetingBaobab]:
    if kind != "poor":
        async with open_meetings(folder, BAOBAB_SIMULATORS="off" if kind == "off" else "auto") as meetings:
            yield meetings
        return
    clock = FixedClock()
    async with start_recall(clock) as fake:
        variables = {"BAOBAB_MEETINGS_PROVIDER": "recall", "BAOBAB_MEETINGS_KEY": KEY, "BAOBAB_MEETINGS_URL": fake.url}
        async with open_meetings(folder, clock, **variables, BAOBAB_MEETINGS_WEBHOOK_SECRET=SECRET) as meetings:
            organisation_id = await get_first_organisation(meetings)
            await meetings.application.services.part(Credits).set_terms(organisation_id, allowance=0)
            yield meetings
            await meetings.advance(60)
            assert fake.creations == []


NO_CREDENTIALS = {
    "nobody": {"x-nothing": ""},
    "garbled": {"authorization": "Nothing of the kind"},
    "unknown": {"authorization": f"Bearer bb_sk_{'x' * 40}"},
}


async def list_headers(meetings: MeetingBaobab, by: str) -> dict[str, str]:
    match by:
        case "revoked":
            made_key = (await meetings.request("POST", "/api-keys", json={"name": "gone"})).json()
            await meetings.request("DELETE", f"/api-keys/{made_key['key_id']}")
            return {"authorization": f"Bearer {made_key['key']}"}
        case "narrow":
            return await create_key(meetings, scopes=["substrate"])
        case "stranger":
            return (await create_person(meetings, "stranger")).headers
    return NO_CREDENTIALS.get(by, meetings.owner)


@pytest.mark.parametrize("name", CASES)
async def test_an_error_has_its_code_and_its_form_over_rest_and_mcp(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    async with open_server(case.server, tmp_path) as meetings:
        own_app = await meetings.create_app()
        app = {"own": own_app, "missing": NO_APP}.get(case.app or "")
        headers = await list_headers(meetings, case.by)
        path = f"{meetings.path(app)}{case.path}"
        answer = await meetings.request(case.method, path, json=case.body, headers=headers)
        body = answer.json()
        assert answer.status_code == case.status, answer.text
        error = body if case.flat else body["error"]
        if case.flat:
            assert body["error"] == case.flat
        else:
            assert (error["type"], error["code"]) == (case.kind, case.code)
        assert set(case.fields) <= error.keys()
        assert error["remediation"]
        arguments = {**(case.body or {}), **case.named, **({} if app is None else {"app_id": app})}
        mcp_answer = await send_message(meetings, "tools/call", {"name": case.tool, "arguments": arguments}, by=headers)
        if case.status == 401:
            assert mcp_answer.status == 401
            return
        refusal = read_refusal(mcp_answer.result)
        assert refusal["code"] == (case.mcp_code or case.code)
        assert refusal["remediation"]
