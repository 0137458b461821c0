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
from tests.crash.load import under_load
from tests.crash.machines import Installation, made_app, ready, visitor
from tests.crash.rounds import rounds

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
    here, ledger, dice = Installation.of_the_column(tmp_path), Ledger(), random.Random(31)
    with here.machine() as server:
        async with visitor() as session:
            app = await made_app(session, server)
            async with under_load(session, [server], app, ledger, dice) as load:
                for _ in rounds(2):
                    await load.more(100)
                    with full_disk(server):
                        await load.refusal()
                        # Whatever is there can be read meanwhile.
                        async with session.get(f"{server.address}/apps") as listed:
                            assert listed.status == 200
                    await load.more(100)
                    await ready(session, server)
            await ledger.verify(session, server.address, app)
        server.kill()
    with here.machine() as server:
        async with visitor() as session:
            await ledger.verify(session, server.address, app)
