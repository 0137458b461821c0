"""Every statement about users finds its rows by an index, on both databases: with a million rows as with ten."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.jobs import run_due_jobs, run_job
from tests.tools.users.conftest import EMAIL, PASSWORD, UsersHarness

# One row for each app that has settings, read once in an hour.
_SMALL = ("user_settings",)


class Plans:
    """Asks for the plan of each statement as it is executed, on its own connection."""

    def __init__(self) -> None:
        self.scans: list[str] = []
        self.count = 0
        self._asks = False

    def look(self, connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if self._asks or many or " user" not in statement or statement.lstrip()[:6] not in _EXPLAINED:
            return
        self._asks = True
        try:
            plan = self._explain(connection, statement, parameters)
        finally:
            self._asks = False
        self.count += 1
        self.scans += [f"{line}: {statement}" for line in plan if not any(name in line for name in _SMALL)]

    def _explain(self, connection: Any, statement: str, parameters: Any) -> list[str]:
        """The lines of a plan that read a whole table or index."""
        if connection.dialect.name == "sqlite":
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            return [row[-1] for row in rows if row[-1].startswith("SCAN user")]
        # With few rows it would read the whole table in any case.
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        lines = [row[0] for row in connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)]
        connection.exec_driver_sql("SET LOCAL enable_seqscan = on")
        scans = [line for line in lines if "Seq Scan on user" in line]
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            if "Index" in line and "Scan using" in line and " on user" in line and "Index Cond" not in following:
                scans.append(line)
        return scans


_EXPLAINED = ("SELECT", "UPDATE", "DELETE")


@pytest.fixture
def plans() -> Iterator[Plans]:
    created_plans = Plans()
    event.listen(Engine, "after_cursor_execute", created_plans.look)
    yield created_plans
    event.remove(Engine, "after_cursor_execute", created_plans.look)


async def test_no_statement_about_users_reads_a_whole_table(people: UsersHarness, plans: Plans) -> None:
    call, owner = people.call, people.owner
    await call("users_settings_update", owner, anonymous=True, anonymous_days=30)
    user = await people.sign_up()
    await call("auth_verify_email", email=EMAIL, code=await people.read_code())
    tokens = await people.log_in()
    caller = await people.authenticate(tokens)
    await call("auth_refresh", refresh_token=tokens["refresh_token"])
    await call("auth_me", caller)
    await call("auth_sessions", caller)
    people.tools.clock.advance(1)
    await call("auth_magic_link", email=EMAIL)
    await call("auth_magic_link_verify", email=EMAIL, code=await people.read_code())
    people.tools.clock.advance(1)
    await call("auth_forgot_password", email=EMAIL)
    await call("auth_reset_password", email=EMAIL, code=await people.read_code(), new_password=PASSWORD)
    caller = await people.authenticate(await people.log_in())
    await call("auth_second_factor_get", caller)
    await call("auth_totp_enrol", caller)
    await call("auth_passkeys", caller)
    await call("auth_passkey_options", caller, origin="http://localhost:3000")
    await call("auth_anonymous")
    await call("users_invite", owner, email="ben@example.com")
    await call("users_invitations_list", owner)
    await call("users_list", owner, search="ada")
    first = await call("users_list", owner, limit=1)
    await call("users_list", owner, limit=1, cursor=first["next_cursor"])
    await call("users_sessions", owner, user_id=user["id"])
    await call("users_hook_calls", owner)
    await call("users_update", owner, user_id=user["id"], banned=True)
    await call("users_second_factor_reset", owner, user_id=user["id"])
    await call("users_delete", owner, user_id=user["id"])
    await run_due_jobs(people.tools)
    for job in ("auth_prune", "auth_sweep_anonymous"):
        await run_job(people.tools, job)
    assert plans.count > 50
    assert plans.scans == []
