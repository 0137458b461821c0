"""Slots for jobs: how many work at once, whose turn it is, and how many more may wait for the network.

A job that waits for a model, a tool server or a webhook holds no slot:

    async with network_wait():
        answer = await client.request(...)
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

_INSIDE_FOR_EACH_SLOT = 32


class Lane:
    """The slots of some kinds of jobs in one process; used on one event loop.

    slots: how many jobs work at once. inside: how many there are at most with those that wait for the network. shared:
    whether one slot is always left to other tenants, however few there are.

    Tenants take turns for a slot that becomes free. When all slots are free, one tenant can begin jobs in three
    quarters of them. Of the places inside, a tenant has at most half as many as are left free, so that there is always
    one for a tenant who comes new.
    """

    def __init__(self, slots: int, inside: int | None = None, *, shared: bool = False) -> None:
        self._free = slots
        left = slots // 4 or int(shared and slots > 1)
        self._share = slots - left
        self._places = slots * _INSIDE_FOR_EACH_SLOT if inside is None else inside
        self._inside: Counter[str] = Counter()
        self._working: Counter[str] = Counter()
        self._line: dict[str, deque[asyncio.Future[None]]] = {}
        self._asking: set[str] = set()
        self._granted: set[str] = set()

    def take(self, tenant: str) -> bool:
        """Take a slot and a place for a job that begins; False where there is none for this tenant now."""
        if not self._admits(tenant):
            return False
        if tenant in self._granted:
            self._granted.remove(tenant)
        elif self._free and self._working[tenant] < self._share:
            self._free -= 1
            self._working[tenant] += 1
        else:
            return False
        self._inside[tenant] += 1
        return True

    def ask(self, tenant: str, tell: Callable[[], None]) -> None:
        """Have a slot kept for a job of this tenant when its turn comes, and `tell` called then."""
        if self._free or tenant in self._asking or tenant in self._granted or not self._admits(tenant):
            return

        def grant(_: asyncio.Future[None]) -> None:
            self._asking.discard(tenant)
            self._granted.add(tenant)
            tell()

        self._asking.add(tenant)
        self._stand_in_line(tenant).add_done_callback(grant)

    def give_up_granted(self) -> None:
        """Free the slots that are kept for tenants who have no job for them any more."""
        while self._granted:
            self.release(self._granted.pop())

    def give_back(self, tenant: str, count: int) -> None:
        """Give back what was taken for jobs that there are not."""
        for _ in range(count):
            self.release(tenant)
            self.leave(tenant)

    def leave(self, tenant: str) -> None:
        """Give the place of a job back that has ended."""
        _lower(self._inside, tenant)

    def release(self, tenant: str) -> None:
        """Give a slot to the tenant whose turn it is; each goes to the end of the line with the slot it gets."""
        _lower(self._working, tenant)
        while self._line:
            following = next(iter(self._line))
            turns = self._line.pop(following)
            turn = turns.popleft()
            if turns:
                self._line[following] = turns
            if not turn.done():
                self._working[following] += 1
                turn.set_result(None)
                return
        self._free += 1

    async def retake(self, tenant: str) -> None:
        """Wait for a slot for a job that has a place."""
        if self._free:
            self._free -= 1
            self._working[tenant] += 1
            return
        turn = self._stand_in_line(tenant)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release(tenant)
            raise

    def inside(self, tenant: str) -> int:
        return self._inside[tenant]

    def _admits(self, tenant: str) -> bool:
        left, here = self._places - self._inside.total(), self._inside[tenant]
        return left > 0 and (not here or here < left // 2 or here < self._share <= left)

    def _stand_in_line(self, tenant: str) -> asyncio.Future[None]:
        turn = asyncio.get_running_loop().create_future()
        self._line.setdefault(tenant, deque()).append(turn)
        return turn


class Slot:
    """The slot and the place of one job that has begun."""

    def __init__(self, lane: Lane, tenant: str) -> None:
        self._lane = lane
        self.tenant = tenant
        self._held = True
        self._ended = False

    def use(self) -> None:
        """Let `network_wait` find it, in this task and in all that it starts."""
        _slot.set(self)

    def end(self) -> None:
        self._ended = True
        self.let_go()
        self._lane.leave(self.tenant)

    def let_go(self) -> None:
        if self._held:
            self._held = False
            self._lane.release(self.tenant)

    async def take_again(self) -> None:
        if self._held or self._ended:
            return
        await self._lane.retake(self.tenant)
        # Another branch of the job may have come back meanwhile, or the job may have ended.
        if self._held or self._ended:
            self._lane.release(self.tenant)
        else:
            self._held = True


@asynccontextmanager
async def network_wait() -> AsyncGenerator[None, None]:
    """Give the slot of the present job to others while this waits, and go on when it has one again.

    It does nothing outside of jobs. Who is cancelled does not wait for a slot.
    """
    slot = _slot.get()
    if slot is None:
        yield
        return
    inner = _slot.set(None)
    slot.let_go()
    try:
        yield
    except asyncio.CancelledError:
        raise
    except BaseException:
        await slot.take_again()
        raise
    else:
        await slot.take_again()
    finally:
        _slot.reset(inner)


_slot: ContextVar[Slot | None] = ContextVar("slot of a job", default=None)


def _lower(counter: Counter[str], tenant: str) -> None:
    counter[tenant] -= 1
    if not counter[tenant]:
        del counter[tenant]
