"""What is held in memory for a while: it must neither outlive a revocation nor get lost with a database."""

import asyncio
from typing import Any

import pytest

from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.core.audit import AuditLog
from baobab.tools.core.auth.credentials import Credentials
from baobab.tools.core.auth.directory import Key
from baobab.tools.core.errors import InvalidApiKey
from baobab.tools.users.session_check import SessionCheck
from tests.conftest import KEY, Baobab


async def test_a_key_revoked_while_it_is_looked_up_is_not_remembered(baobab: Baobab) -> None:
    services = baobab.application.services
    live: list[Key | None] = [Key("k", "o", "a", None, frozenset("*"))]
    going = asyncio.Event()

    class SlowDirectory:
        async def key(self, _digest: str) -> Key | None:
            key = live[0]
            await going.wait()
            return key

    directory: Any = SlowDirectory()
    sessions = SessionCheck(directory, services.regions, services.clock)
    credentials = Credentials(directory, services.signers, sessions, services.clock, services.notices)
    task = asyncio.create_task(credentials.caller(b"Bearer " + KEY.encode()))
    await asyncio.sleep(0)
    live[0] = None
    unit = services.database.build_unit(write=True)
    await services.notices.publish(unit, "key", "any")
    await unit.commit()
    going.set()
    await task
    with pytest.raises(InvalidApiKey):
        await credentials.caller(b"Bearer " + KEY.encode())


async def test_tallies_survive_a_database_that_does_not_answer(baobab: Baobab, monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = await baobab.create_app()
    services = baobab.application.services
    trail: AuditLog = services.audit_log
    path = f"/v1/{app_id}/kv/n"
    # What the way needs of the database is in memory after this.
    assert (await baobab.client.put(path, json={"value": 1}, headers=baobab.owner)).status_code == 204
    await trail.flush()

    def fail(**_: object) -> None:
        raise DatabaseUnavailable("down")

    with monkeypatch.context() as patch:
        for name in ("reading", "writing"):
            patch.setattr(services.database, name, fail)
        for _ in range(2):
            answer = await baobab.client.put(path, json={"value": 1}, headers=baobab.owner)
            assert answer.status_code == 204
            with pytest.raises(DatabaseUnavailable):
                await trail.flush()
    await baobab.client.put(path, json={"value": 1}, headers=baobab.owner)
    logs = (await baobab.client.get(f"/v1/{app_id}/audit-logs?event_type=kv.write", headers=baobab.owner)).json()
    assert [log["event_data"]["count"] for log in logs["logs"]] == [3, 1]
