"""What tests of the console's pages share."""

import pytest

from tests.conftest import Baobab
from tests.http.console.test_console import sign_in
from tests.http.console.test_runs import Runner


@pytest.fixture
async def visitor(baobab: Baobab) -> Runner:
    """An app, and a browser in which its owner has signed in."""
    return Runner(baobab, await baobab.create_app(), await sign_in(baobab))
