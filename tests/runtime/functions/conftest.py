"""One engine for the tests of a file that need no limits of their own."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.runtime.functions.sandboxes import Sandbox, open_sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_sandbox(processes=6) as new_sandbox:
        yield new_sandbox
