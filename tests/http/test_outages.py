"""An outage of the database is the same error at every address, whichever part of the server answers there."""

from typing import Any

import pytest

from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.core.auth.directory import Directory
from tests.conftest import Baobab

pytestmark = pytest.mark.own_installation


async def fail(*_: Any) -> Any:
    raise DatabaseUnavailable("ConnectionRefusedError", "nobody listens")


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("GET", "/v1/{app}/kv/a", "store_error"),
        ("GET", "/v1/{app}/config", {"code": "SERVICE_UNAVAILABLE"}),
        ("GET", "/.well-known/oauth-authorization-server/auth/{app}", {"code": "SERVICE_UNAVAILABLE"}),
        ("GET", "/.well-known/oauth-protected-resource/mcp?app_id={app}", {"code": "SERVICE_UNAVAILABLE"}),
        ("GET", "/auth/{app}/mcp/authorize", "temporarily_unavailable"),
        ("POST", "/auth/{app}/mcp/token", "temporarily_unavailable"),
    ],
)
async def test_every_part_of_the_server_says_that_the_database_does_not_answer(
    baobab: Baobab, monkeypatch: pytest.MonkeyPatch, method: str, path: str, error: Any
) -> None:
    app = await baobab.create_app()
    monkeypatch.setattr(Directory, "app", fail)
    monkeypatch.setattr(Directory, "cached_app", lambda *_: None)
    answer = await baobab.client.request(method, path.replace("{app}", app), headers=baobab.owner)
    assert (answer.status_code, answer.headers.get("retry-after")) == (503, "2"), answer.text
    told_error = answer.json()["error"]
    assert told_error == error or told_error["code"] == error["code"]
    assert "The database does not answer." in answer.text
