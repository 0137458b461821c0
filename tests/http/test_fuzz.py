"""Every operation, with bodies and parameters that nobody thought of: what comes back is what the document says."""

import asyncio
import collections
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import hypothesis
import pytest
import requests
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from baobab.server import Server
from baobab.settings import load_settings
from baobab.tools import toolsets
from baobab.tools.core.services import Services
from tests.conftest import ADDRESS, KEY
from tests.installation import reset_rate_limits

pytestmark = pytest.mark.long_file

TOOLS = [tool.name for toolset in toolsets() for tool in toolset.tools.values() if tool.rest]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

# With the real id every later example would find the app gone.
LEFT_TO_CHANCE = {"apps_delete"}

# One segment of a path, as it is sent.
NASTY = (
    "..",
    "../../etc/passwd",
    "%2e%2e%2f%2e%2e",
    "a%2fb",
    "%00",
    "a%00b",
    "%",
    "%zz",
    "%ff%fe",
    "%c0%af",
    "%F0%9F%98%80",
    "a//b",
    ".",
    "\\..\\",
    "{app_id}",
    "'%20OR%201=1--",
    "%0d%0aSet-Cookie:%20a=b",
    "a;b",
    "a%3Fb",
    "a%23b",
    "x" * 5000,
)


# To draw a case takes a tenth of a second of a processor, so a usual run draws a few and `make fuzz` many.
_CASES = 2 if hypothesis.settings().derandomize else 30
SETTINGS = hypothesis.settings(
    max_examples=_CASES,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)


@dataclass
class FuzzTarget:
    """An installation with an app, and its document as Schemathesis reads it."""

    loop: asyncio.AbstractEventLoop
    client: httpx.AsyncClient
    schema: Any
    places: dict[str, str]
    services: Services

    def send(self, case: Any, headers: dict[str, str]) -> httpx.Response:
        """Send a case byte by byte as `requests` would, but to the application in this process."""
        prepared_request: Any = requests.Request(
            **case.as_transport_kwargs(base_url=ADDRESS, headers=headers)
        ).prepare()
        body = prepared_request.body.encode() if isinstance(prepared_request.body, str) else prepared_request.body
        ours = {"host", "content-length"} if headers else {"host", "content-length", "authorization"}
        own_headers = {name: value for name, value in prepared_request.headers.items() if name.lower() not in ours}
        url = httpx.URL(ADDRESS).copy_with(raw_path=prepared_request.path_url.encode())
        return self.loop.run_until_complete(
            self.client.request(prepared_request.method, url, content=body, headers=own_headers)
        )

    def ask_as_owner(self, method: str, path: str, body: Any = None) -> Any:
        asking = self.client.request(method, path, json=body, headers={"authorization": f"Bearer {KEY}"})
        return self.loop.run_until_complete(asking).raise_for_status().json()

    def start_anew(self) -> None:
        """Removes the keys that an earlier test has set: with them models would be asked that are on the internet. An
        app that one has paused goes on.
        """
        reset_rate_limits(self.services)
        self.ask_as_owner("PATCH", f"/v1/{self.places['app_id']}/config/pause", {"paused": False})
        for key in self.ask_as_owner("GET", "/v1/ai/provider-keys")["provider_keys"]:
            self.ask_as_owner("DELETE", f"/v1/ai/provider-keys/{key['provider']}")
        self.ask_as_owner("PUT", f"/v1/{self.places['app_id']}/ai/config", {"byokKey": None})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzTarget]:
    environment = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY}
    server = Server(load_settings(environment, data=tmp_path_factory.mktemp("fuzz")))
    owner = {"authorization": f"Bearer {KEY}"}
    with asyncio.Runner() as runner:
        application = server.open()
        services = runner.run(application.__aenter__()).services
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=server), base_url=ADDRESS)
        app = runner.run(client.post("/init", json={"name": "fuzz"}, headers=owner)).json()
        document = runner.run(client.get("/openapi.json")).json()
        schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig())
        places = {"app_id": app["app_id"], "organization_id": app["organization_id"], "key": "a", "pattern": "a:*"}
        yield FuzzTarget(runner.get_loop(), client, schema, places, services)
        runner.run(client.aclose())
        runner.run(application.__aexit__(None, None, None))


@pytest.mark.parametrize("tool", TOOLS)
def test_whatever_is_sent_the_answer_is_one_that_the_document_describes(running: Any, tool: Any) -> None:
    running.start_anew()
    operation = running.schema.find_operation_by_id(tool)
    raw = operation.definition.raw
    names = {p["name"] for p in raw.get("parameters", ()) if p["in"] == "path"}
    places = {} if tool in LEFT_TO_CHANCE else {name: running.places[name] for name in names & running.places.keys()}

    def check(case: Any) -> None:
        if case.path_parameters:
            case.path_parameters |= places
        # To draw a case takes longer than to send it, so each is sent by both.
        for headers in ({"Authorization": f"Bearer {KEY}"}, {}):
            try:
                answer = running.send(case, headers)
            except httpx.InvalidURL:
                # No client sends an address of this length.
                return
            case.validate_response(answer, checks=CHECKS)

    positive, negative = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    # What takes nothing cannot be sent anything wrong.
    takes_something = "parameters" in raw or "requestBody" in raw
    for mode in (positive, negative) if takes_something else (positive,):
        SETTINGS(hypothesis.given(case=operation.as_strategy(generation_mode=mode))(check))()


@pytest.mark.parametrize("segment", NASTY, ids=range(len(NASTY)))
def test_a_nasty_segment_in_any_place_of_any_path_is_refused_in_the_usual_shape(running: Any, segment: Any) -> None:
    running.start_anew()
    owner = {"authorization": f"Bearer {KEY}"}
    known_places = {**running.places, "token": "inv_a"}
    for path, item in running.schema.raw_schema["paths"].items():
        for place in re.findall(r"\{(\w+)\}", path):
            put = collections.defaultdict(lambda: "a", {**known_places, place: segment})
            filled_path = path.format_map(put)
            for method in item:
                url = httpx.URL(ADDRESS).copy_with(raw_path=filled_path.encode())
                response = running.client.request(method, url, headers=owner, json=None if method == "get" else {})
                answer = running.loop.run_until_complete(response)
                assert answer.status_code < 500, f"{method} {filled_path}: {answer.text}"
                assert "set-cookie" not in answer.headers
                if answer.is_redirect:
                    # To a page of the app's site, at the host of the app.
                    assert httpx.URL(answer.headers["location"]).host.endswith(".localhost"), filled_path
                elif not answer.is_success:
                    assert "error" in answer.json(), f"{method} {filled_path}"
