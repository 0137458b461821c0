"""What was used: counted by day (UTC), app, key and model when a reservation is settled."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from baobab.tools.core.credits.rows import credit_usage

_LARGEST = 10**12
_LONGEST_MODEL = 200

UsagePart = Literal["day", "app_id", "key_id", "model"]


@dataclass(frozen=True, slots=True)
class Usage:
    """byok: the provider was paid by the customer; what it cost is counted and not charged. ValueError."""

    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 1
    byok: bool = False

    def __post_init__(self) -> None:
        # Here, where one caller hears of it: in the database it would undo what others do in the same transaction.
        if not all(0 <= count <= _LARGEST for count in (self.prompt_tokens, self.completion_tokens, self.requests)):
            raise ValueError("counts are between 0 and 10**12")
        if not self.model or len(self.model) > _LONGEST_MODEL or "\0" in self.model:
            raise ValueError(f"a model's id has 1 to {_LONGEST_MODEL} characters and no NUL")


@dataclass(frozen=True, slots=True)
class Used:
    """A sum of usage. A part that was not asked for is None; the id of no app or no key is the empty string."""

    day: date | None
    app_id: str | None
    key_id: str | None
    model: str | None
    byok: bool
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: int
    """Nano-dollars: charged, or with `byok` not."""


async def used(
    connection: AsyncConnection,
    organisation_id: str,
    first: date,
    last: date,
    *,
    app_id: str | None = None,
    key_id: str | None = None,
    by: Sequence[UsagePart] = ("model",),
    most: int | None = None,
) -> list[Used]:
    """Sums over the days from `first` to `last`, both included, one for each combination of the parts in `by`.

    most: how many sums at most; None is all.
    """
    columns = credit_usage.c
    parts = [columns[part] for part in ("day", "app_id", "key_id", "model") if part in by] + [columns.byok]
    counted = ("requests", "prompt_tokens", "completion_tokens", "cost")
    sums = [func.sum(columns[name]).label(name) for name in counted]
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
    nothing: dict[str, None] = dict.fromkeys(("day", "app_id", "key_id", "model"))
    rows = (await connection.execute(query)).mappings()
    # Postgres adds up 64-bit integers into a decimal.
    return [Used(**{**nothing, **row, **{name: int(row[name]) for name in counted}}) for row in rows]
