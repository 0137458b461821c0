"""Money in and money out: the decimal that is sent is the decimal that counts and the decimal that is told."""

import asyncio
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.core.limits.money import dollars, nanos
from tests.backends import release_data
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.people import get_first_organisation

Setting = Callable[[str], tuple[httpx.Response, int | None]]

MILLION = 1_000_000
AMOUNTS = st.integers(0, 9).flatmap(
    lambda places: st.decimals(0, MILLION, places=places).map(lambda amount: format(abs(amount), "f"))
)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """Sets a budget over REST to what is JSON already; the answer, and the nano-dollars that count then."""
    data = tmp_path_factory.mktemp("amounts")
    with asyncio.Runner() as runner:
        opening = open_installation(data)
        baobab: Baobab = runner.run(opening.__aenter__())
        app_id, ours = runner.run(baobab.create_app()), runner.run(get_first_organisation(baobab))

        async def set_(most: str) -> tuple[httpx.Response, int | None]:
            path, body = f"/dashboard/billing/budgets/app/{app_id}/day", f'{{"most_usd": {most}}}'
            answer = await baobab.client.put(path, content=body, headers=baobab.owner)
            budgets = await baobab.application.services.part(Credits).budgets(ours)
            return answer, budgets[0].most if budgets else None

        yield lambda most: runner.run(set_(most))
        runner.run(opening.__aexit__(None, None, None))
    release_data(data)


@settings(max_examples=60)
@given(AMOUNTS)
def test_a_number_or_its_text_is_the_same_amount_exactly(setting: Setting, amount: str) -> None:
    for most in (amount, json.dumps(amount)):
        answer, limit_nanos = setting(most)
        assert answer.status_code == 200, answer.text
        body: Any = json.loads(answer.text, parse_float=Decimal, parse_int=Decimal)
        assert body["budget"]["limit_usd"] == Decimal(amount)
        assert limit_nanos == Decimal(amount) * 10**9


@pytest.mark.parametrize(
    ("most", "code"),
    [
        ("-1", "VALIDATION_INVALID_INPUT"),
        ('"-1"', "VALIDATION_INVALID_INPUT"),
        ('"+1"', "VALIDATION_INVALID_INPUT"),
        ('"1,5"', "VALIDATION_INVALID_INPUT"),
        ('"1."', "VALIDATION_INVALID_INPUT"),
        ('"\\u0661"', "VALIDATION_INVALID_INPUT"),
        ('"1\\n"', "VALIDATION_INVALID_INPUT"),
        ('"1e3"', "VALIDATION_INVALID_INPUT"),
        ('""', "VALIDATION_INVALID_INPUT"),
        ('"0.0000000001"', "VALIDATION_INVALID_INPUT"),
        ("0.0000000001", "VALIDATION_INVALID_INPUT"),
        ("0.30000000000000004", "VALIDATION_INVALID_INPUT"),
        ('"1000000.000000001"', "VALIDATION_INVALID_INPUT"),
        ("1000001", "VALIDATION_INVALID_INPUT"),
        ("1" + "0" * 400, "VALIDATION_INVALID_INPUT"),
        ("1e300", "VALIDATION_INVALID_INPUT"),
        ("true", "VALIDATION_INVALID_TYPE"),
        ("null", "VALIDATION_INVALID_TYPE"),
        ("[1]", "VALIDATION_INVALID_TYPE"),
    ],
)
def test_an_amount_that_is_none_is_refused_and_changes_nothing(setting: Setting, most: str, code: str) -> None:
    _, before = setting("12.5")
    answer, after = setting(most)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, code)
    assert error["details"]["fields"][0]["field"] == "most_usd"
    assert after == before


@given(st.integers(0, MILLION * 10**9))
def test_every_amount_has_a_text_that_means_it(amount: int) -> None:
    assert nanos(dollars(amount)) == amount
    assert Decimal(dollars(-amount)) * 10**9 == -amount
