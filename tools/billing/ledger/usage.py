"""Usage: counted by day (UTC), app, key and model when a reservation is settled."""

from collections.abc import Sequence
from datetime import date
from typing import Literal

from sqlalchemy import func, select

from baobab.storage.sql.database import DatabaseConnection
from baobab.tools.billing.tables import credit_usage
from baobab.tools.core.limits.credits import UsageLine

UsagePart = Literal["day", "app_id", "key_id", "model"]


async def read_usage(
    connection: DatabaseConnection,
    organisation_id: str,
    first: date,
    last: date,
    *,
    app_id: str | None = None,
    key_id: str | None = None,
    by: Sequence[UsagePart] = ("model",),
    most: int | None = None,
) -> list[UsageLine]:
    """Sums over the days from `first` to `last`, both included, one for each combination of the parts in `by`.

    most: how many sums at most; None is all.
    """
    columns = credit_usage.c
    parts = [columns[part] for part in ("day", "app_id", "key_id", "model") if part in by] + [columns.byok]
    names = ("requests", "prompt_tokens", "completion_tokens", "cost")
    sums = [func.sum(columns[name]).label(name) for name in names]
    query = (
        select(*parts, *sums)
        .where(columns.organisation_id == organisation_id, columns.day.between(first, last))
        .group_by(*parts)
        .order_by(*parts)
        .limit(most)
    )
    if app_id is not None:
        query = query.where(columns.app_id == app_id)
    if key_id is not None:
        query = query.where(columns.key_id == key_id)
    empty_fields: dict[str, None] = dict.fromkeys(("day", "app_id", "key_id", "model"))
    rows = (await connection.execute(query)).mappings()
    # Postgres adds up 64-bit integers into a decimal.
    return [UsageLine(**{**empty_fields, **row, **{name: int(row[name]) for name in names}}) for row in rows]
