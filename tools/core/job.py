"""A job: one attempt at it, and the kinds that domains declare."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from baobab.storage.sql.database import Database, Unit
from baobab.storage.sql.statements import Statements
from baobab.tools.core.call import ToolRunner
from baobab.tools.core.jobs import MOST_ATTEMPTS
from baobab.tools.core.services import Services


class Job(Protocol):
    """One attempt at a durable job."""

    id: str
    """The same in every attempt."""
    attempt: int
    registry: ToolRunner
    services: Services
    database: Database
    """The database of the transaction that enqueued the job."""

    async def hold(self, unit: Unit, *, last: bool = False) -> None:
        """Makes sure, in a unit of the caller's, that this attempt has the job. Raises JobLost."""
        ...

    def keep(self, statements: Statements, *, last: bool = False, further: bool = False) -> None:
        """Does the same as `hold` in a transaction of `Database.transact`.

        Call `end` once the last one is committed. further: whether the job gets further than before with it; attempts
        are then counted anew.
        """
        ...

    def end(self) -> None:
        """Records that the transaction which ended the job is committed."""
        ...

    def writing(
        self, *, last: bool = False, lock: str | None = None, bulk: bool = False
    ) -> AbstractAsyncContextManager[Unit]:
        """Opens a transaction of this attempt.

        Raises JobLost if another attempt has the job. last: end the job in the same transaction, so that what is
        written here is written once. lock, bulk: as in `Database.writing`.
        """
        ...


Work = Callable[..., Awaitable[None]]
Drop = Callable[[Services, Database, Sequence[Mapping[str, Any]]], Awaitable[None]]
"""Makes jobs, by their arguments, have nothing left to do."""
LEFT_UNDONE = "Left undone: it waited from before this installation was copied, and whoever made it live chose so."
"""The error of a job that was dropped when a copy began to live, and of what it should have done."""
CANCELLED = "Cancelled."
"""The error of a job that a person has ended. No failure has this text."""


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job, as a domain declares it: `async def (job, **arguments)`, or `(job, event)` for a consumer."""

    name: str
    work: Work = field(repr=False)
    attempts: int = MOST_ATTEMPTS
    every: float | None = None
    """Seconds from one round to the next, of which one process of all makes each; such a job takes no arguments."""
    consumes: str | None = None
    """The type of event that it is done for."""
    delay: float = 0.0
    at_once: int | None = None
    """How many of them one process makes at the same time at most, beside those that wait for the network.

    One organisation has one less, so that another need not wait for it."""
    approved: bool = False
    """Whether it does what a person has approved: such jobs have slots of their own."""
    cancel: str | Literal[True] | None = None
    """How those for whom it is done may end it: True by ending the job, since no other row says that it must be done;
    else by the tool of this name. None: it must be done."""
    in_copies: bool = False
    """Whether it only tidies up rows of the database, so that a copy of an installation does it, too."""
    drop: Drop | Literal[True] | None = field(default=None, repr=False)
    """How it is left undone where it waited in a copy that becomes the installation that lives: True by ending it, as
    all with `cancel=True` are; else by this function, after which the job ends by itself. None: it must be done."""
