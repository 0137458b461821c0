"""The contract's routes of the domains that are finished: every one of them is in the document."""

import re
from typing import Any

import pytest

from tests.conftest import Baobab

FINISHED = """
GET    /v1/{app_id}/kv/{key}
GET    /v1/{app_id}/kv/{key}/ttl
GET    /v1/{app_id}/kv/{key}/exists
PUT    /v1/{app_id}/kv/{key}
DELETE /v1/{app_id}/kv/{key}
POST   /v1/{app_id}/kv/{key}/incr
POST   /v1/{app_id}/kv/{key}/decr
POST   /v1/{app_id}/kv/{key}/setnx
POST   /v1/{app_id}/kv/{key}/cas
POST   /v1/{app_id}/kv/{key}/expire
POST   /v1/{app_id}/kv/_batch
GET    /v1/{app_id}/kv/_scan
GET    /v1/{app_id}/kv/_stats
POST   /v1/{app_id}/kv/_flush
GET    /v1/{app_id}/kv/_expose
PUT    /v1/{app_id}/kv/_expose/{pattern}
DELETE /v1/{app_id}/kv/_expose/{pattern}
GET    /v1/{app_id}/kv/_audit_recent
GET    /v1/{app_id}/config
PATCH  /v1/{app_id}/config/access-mode
PATCH  /v1/{app_id}/config/auth-hooks
PATCH  /v1/{app_id}/config/visibility
PATCH  /v1/{app_id}/config/storage
PATCH  /v1/{app_id}/config/jwt
PATCH  /v1/{app_id}/config/cors
PATCH  /v1/{app_id}/config/pause
POST   /v1/{app_id}/secure
GET    /v1/regions
POST   /init
GET    /apps
GET    /apps/{app_id}/status
PATCH  /apps/{app_id}
DELETE /apps/{app_id}
GET    /v1/{app_id}/audit-logs
GET    /llms.txt
GET    /mcp
POST   /mcp
DELETE /mcp
POST   /suggestions
GET    /health
GET    /health/ready
POST   /api-keys
GET    /api-keys
DELETE /api-keys/{key_id}
POST   /platform/signup
POST   /platform/login
POST   /platform/refresh
GET    /platform/me
"""


def normalize_path(path: str) -> str:
    """The path with every parameter written the same way: what it is called is no part of the contract."""
    return re.sub(r"\{[^}]*\}", "{}", path)


@pytest.fixture
async def openapi_routes(baobab: Baobab) -> Any:
    document = (await baobab.client.get("/openapi.json")).json()
    return {(method.upper(), normalize_path(path)) for path, item in document["paths"].items() for method in item}


async def test_the_document_has_every_route_of_the_finished_domains(openapi_routes: Any) -> None:
    finished_routes = [tuple(line.split()) for line in FINISHED.strip().splitlines()]
    assert [
        f"{method} {path}" for method, path in finished_routes if (method, normalize_path(path)) not in openapi_routes
    ] == []


async def test_every_route_of_the_document_is_served(baobab: Baobab) -> None:
    document = (await baobab.client.get("/openapi.json")).json()
    for path, item in document["paths"].items():
        for method in item:
            answer = await baobab.client.request(method, re.sub(r"\{[^}]*\}", "none", path))
            has_no_route = answer.status_code == 404 and "No operation has this path" in answer.text
            assert not has_no_route, f"{method} {path}"
            # The stateless MCP endpoint refuses to open a stream, as its contract says.
            assert answer.status_code != 405 or path == "/mcp", f"{method} {path}"
