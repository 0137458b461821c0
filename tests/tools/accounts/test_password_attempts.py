"""Guessing passwords is slow from one address and for one account, and locks nobody out who knows theirs."""

import pytest

from baobab.tools.accounts.errors import InvalidCredentials
from baobab.tools.core.errors import RateLimited
from tests.tools.conftest import PASSWORD, ToolHarness

EMAIL = "ada@example.com"


async def test_correct_sign_ins_do_not_count_as_attacks(harness: ToolHarness) -> None:
    await harness.sign_up(EMAIL)
    for _ in range(30):
        assert (await harness.call("platform_login", ip="192.0.2.1", email=EMAIL, password=PASSWORD))["token"]


async def test_an_account_is_slowed_down_for_those_who_have_failed_and_its_owner_signs_in(harness: ToolHarness) -> None:
    await harness.sign_up(EMAIL)
    for number in range(20):
        with pytest.raises(InvalidCredentials):
            await harness.call("platform_login", ip=f"192.0.2.{number}", email=EMAIL, password="Wrong horse 7!")
    # Each address has used up the one try that it has for this account now, and for no other.
    with pytest.raises(RateLimited):
        await harness.call("platform_login", ip="192.0.2.1", email=EMAIL, password=PASSWORD)
    with pytest.raises(InvalidCredentials):
        await harness.call("platform_login", ip="192.0.2.1", email="bob@example.com", password=PASSWORD)
    assert (await harness.call("platform_login", ip="198.51.100.7", email=EMAIL, password=PASSWORD))["token"]
    harness.clock.advance(901)
    assert (await harness.call("platform_login", ip="192.0.2.1", email=EMAIL, password=PASSWORD))["token"]


async def test_a_flood_of_addresses_makes_nothing_else_forgotten(harness: ToolHarness) -> None:
    limits = harness.services.limits
    for _ in range(5):
        limits.spend("wrong_for", "ada", 100, 900)
    for number in range(150_000):
        limits.spend("platform_login", str(number), 60, 900)
    assert limits.count_used("wrong_for", "ada", 100, 900) == 5
