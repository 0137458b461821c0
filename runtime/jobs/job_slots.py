"""Slots for jobs: how many work at once, which tenant is next, and how many more may wait for the network.

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


class SlotPool:
    """The slots of some kinds of jobs in one process; used on one event loop.

    slots: how many jobs work at once. inside: how many jobs there are at most, with those that wait for the network.
    shared: whether one slot is always left to other tenants, however few slots there are.

    A slot that becomes free goes to the tenants in turn. When all slots are free, one tenant can start jobs in three
    quarters of them. A tenant gets another place inside only while it has fewer than half as many as are left, so that
    a new tenant always finds one.
    """

    def __init__(self, slots: int, inside: int | None = None, *, shared: bool = False) -> None:
        self._free = slots
        slots_left = slots // 4 or int(shared and slots > 1)
        self._share = slots - slots_left
        self._places = slots * _INSIDE_FOR_EACH_SLOT if inside is None else inside
        self._jobs_inside: Counter[str] = Counter()
        self._jobs_working: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._requesting: set[str] = set()
        self._granted_tenants: set[str] = set()

    def try_acquire(self, tenant: str) -> bool:
        """Takes a slot and a place for a new job. Returns False where there is none for this tenant now."""
        if not self._has_room(tenant):
            return False
        if tenant in self._granted_tenants:
            self._granted_tenants.remove(tenant)
        elif self._free and self._jobs_working[tenant] < self._share:
            self._free -= 1
            self._jobs_working[tenant] += 1
        else:
            return False
        self._jobs_inside[tenant] += 1
        return True

    def request_slot(self, tenant: str, notify: Callable[[], None]) -> None:
        """Queues for a slot, which is kept for the tenant when its turn comes; `notify` is called then."""
        if self._free or tenant in self._requesting or tenant in self._granted_tenants or not self._has_room(tenant):
            return

        def grant_slot(_: asyncio.Future[None]) -> None:
            self._requesting.discard(tenant)
            self._granted_tenants.add(tenant)
            notify()

        self._requesting.add(tenant)
        self._join_queue(tenant).add_done_callback(grant_slot)

    def release_granted(self) -> None:
        """Frees the slots that are kept for tenants who no longer have a job for them."""
        while self._granted_tenants:
            self.release_slot(self._granted_tenants.pop())

    def return_slots(self, tenant: str, count: int) -> None:
        """Gives back slots and places that were taken and not used."""
        for _ in range(count):
            self.release_slot(tenant)
            self.release_place(tenant)

    def release_place(self, tenant: str) -> None:
        """Gives back the place of a job that has ended."""
        _decrement(self._jobs_inside, tenant)

    def release_slot(self, tenant: str) -> None:
        """Gives a slot to the next tenant in the queue, who then goes to the end of it."""
        _decrement(self._jobs_working, tenant)
        while self._queues:
            next_tenant = next(iter(self._queues))
            waiters = self._queues.pop(next_tenant)
            waiter = waiters.popleft()
            if waiters:
                self._queues[next_tenant] = waiters
            if not waiter.done():
                self._jobs_working[next_tenant] += 1
                waiter.set_result(None)
                return
        self._free += 1

    async def acquire_slot(self, tenant: str) -> None:
        """Waits for a slot for a job that has a place."""
        if self._free:
            self._free -= 1
            self._jobs_working[tenant] += 1
            return
        waiter = self._join_queue(tenant)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.release_slot(tenant)
            raise

    def count_inside(self, tenant: str) -> int:
        return self._jobs_inside[tenant]

    def _has_room(self, tenant: str) -> bool:
        places_left, tenant_jobs = self._places - self._jobs_inside.total(), self._jobs_inside[tenant]
        return places_left > 0 and (
            not tenant_jobs or tenant_jobs < places_left // 2 or tenant_jobs < self._share <= places_left
        )

    def _join_queue(self, tenant: str) -> asyncio.Future[None]:
        waiter = asyncio.get_running_loop().create_future()
        self._queues.setdefault(tenant, deque()).append(waiter)
        return waiter


class JobSlot:
    """The slot and the place of one running job."""

    def __init__(self, pool: SlotPool, tenant: str) -> None:
        self._pool = pool
        self.tenant = tenant
        self._is_held = True
        self._has_ended = False

    def bind_to_task(self) -> None:
        """Makes this the slot that `network_wait` releases, in this task and in all tasks that it starts."""
        _slot.set(self)

    def end_job(self) -> None:
        self._has_ended = True
        self.release_slot()
        self._pool.release_place(self.tenant)

    def release_slot(self) -> None:
        if self._is_held:
            self._is_held = False
            self._pool.release_slot(self.tenant)

    async def reacquire_slot(self) -> None:
        if self._is_held or self._has_ended:
            return
        await self._pool.acquire_slot(self.tenant)
        # Another task of the job may have got the slot back meanwhile, or the job may have ended.
        if self._is_held or self._has_ended:
            self._pool.release_slot(self.tenant)
        else:
            self._is_held = True


@asynccontextmanager
async def network_wait() -> AsyncGenerator[None, None]:
    """Releases the running job's slot while the block runs, and waits for a slot at the end of the block.

    Does nothing outside of jobs. A task that is cancelled in the block does not wait for a slot.
    """
    slot = _slot.get()
    if slot is None:
        yield
        return
    token = _slot.set(None)
    slot.release_slot()
    try:
        yield
    except asyncio.CancelledError:
        raise
    except BaseException:
        await slot.reacquire_slot()
        raise
    else:
        await slot.reacquire_slot()
    finally:
        _slot.reset(token)


_slot: ContextVar[JobSlot | None] = ContextVar("slot of a job", default=None)


def _decrement(counter: Counter[str], tenant: str) -> None:
    counter[tenant] -= 1
    if not counter[tenant]:
        del counter[tenant]
