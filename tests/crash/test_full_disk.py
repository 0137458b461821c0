"""The disk of the data folder is full, and then there is space again.

A file system of a test's own would need root. A limit on the size of files is the same to a process: what it has can be
read and overwritten, and nothing grows. Where the rows are in Postgres, another folder has the keys and the rows go on.
"""

import contextlib
import random
import resource
from collections.abc import Iterator
from pathlib import Path

from tests.cli.server_process import ServerProcess
from tests.crash.ledger import Ledger
from tests.crash.load import run_load
from tests.crash.machines import Installation, create_app, open_session, wait_for_readiness
from tests.crash.rounds import list_rounds

ROOM = 100_000
"""Bytes that the largest file of each kind may have; the databases are longer than that from the start."""


@contextlib.contextmanager
def full_disk(server: ServerProcess) -> Iterator[None]:
    process = server.process.pid
    soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))


async def test_no_acknowledged_write_is_lost_when_the_disk_is_full_and_all_goes_on_when_there_is_space_again(
    tmp_path: Path,
) -> None:
    here, ledger, dice = Installation.on_backend(tmp_path), Ledger(), random.Random(31)
    with here.start_machine() as server:
        async with open_session() as session:
            app = await create_app(session, server)
            async with run_load(session, [server], app, ledger, dice) as load:
                for _ in list_rounds(2):
                    await load.wait_for_writes(100)
                    with full_disk(server):
                        await load.wait_for_refusal()
                        # Whatever is there can be read meanwhile.
                        async with session.get(f"{server.address}/apps") as response:
                            assert response.status == 200
                    await load.wait_for_writes(100)
                    await wait_for_readiness(session, server)
            await ledger.verify(session, server.address, app)
        server.kill()
    with here.start_machine() as server:
        async with open_session() as session:
            await ledger.verify(session, server.address, app)
