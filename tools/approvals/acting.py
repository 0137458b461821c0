"""Whose right a waiting call uses: its proposer's, or that of the app, which an agent's node lends to it."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.agents.spec.app_rights import require_app_right
from baobab.storage.sql.database import DatabaseConnection, Unit
from baobab.tools.core import Caller, Forbidden, Services
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.callers import ActingApp
from baobab.tools.core.call import Tool


async def restore_acting_caller(
    services: Services, connection: DatabaseConnection | Unit, row: Any, tool: Tool
) -> Caller:
    """Returns the caller with whose right the call of a row is made. row: of `approvals`.

    Raises what `restore_caller` raises; AppNotFound, AppPaused or AppRightWithdrawn if the app's right is no longer
    lent, and Forbidden if the tool no longer acts as the app.
    """
    if row.app_right is None:
        return await proposers.restore_caller(connection.execute, services.credits, row.caller, services.clock.now())
    if tool.as_app is None:
        raise Forbidden(f"{tool.name} no longer acts with the app's right.")
    app, right = await services.directory.app(row.app_id), row.app_right
    region = services.stores_of(app.region).database
    # Whoever holds a connection must not wait for another to the same database.
    execute = connection.execute if region is services.database else region.execute
    await require_app_right(execute, app, right["agent_id"], right["node"], right["digest"])
    return ActingApp(app.id, right["agent_id"])


def describe_right(row: Any) -> Mapping[str, Any] | None:
    """Says whose right the call of a row uses, for the audit log: the app's, for whom and by whose approval; None if it
    uses its proposer's.
    """
    if row.app_right is None:
        return None
    approved_by = list(row.agreed) if row.agreed else [row.decided_by]
    return {
        "of": "app",
        "agent": row.agent,
        "node": row.app_right["node"],
        "run_id": row.run_id,
        "started_by": row.starter,
        "approved_by": approved_by,
    }
