"""E-mail lookups, the cache, charges and erasure: what is charged is exact, whatever comes in whatever order."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ADDRESS
from tests.tools.people.conftest import CENT, LIVE, Directory, open_directory
from tests.tools.people.fakes import NETWORK, Fake, start_fake

PERSON = f"{NETWORK}/in/person-1"
DAY = 86_400


async def queue(directory: Directory, url: str = PERSON) -> str:
    answer = await directory.ask("/profile/email", networkProfileUrl=url)
    assert answer.status_code == 200, answer.text
    lookup_id: str = answer.json()["lookupId"]
    return lookup_id


async def test_a_result_is_charged_once_however_often_it_comes(live: Directory, fake: Fake) -> None:
    before = await live.read_balance()
    lookup_id = await queue(live)
    assert before - await live.read_balance() == 6 * CENT
    (callback,) = fake.callbacks
    assert callback.startswith(f"{ADDRESS}/v1/{live.app}/people/email-callback/{lookup_id}/")
    assert len(callback.rpartition("/")[2]) >= 43
    for _ in range(3):
        answer = await live.send_callback(callback, email="ada@acme.example", status="email_found", further={"a": 1})
        assert (answer.status_code, answer.json()) == (200, {"received": True})
    lookup = await live.read(f"/email-lookup/{lookup_id}")
    assert lookup == {"status": "resolved", "email": "ada@acme.example", "credits_consumed": 4}
    assert before - await live.read_balance() == 8 * CENT
    rows = sorted(await live.read_usage())
    assert rows == [("profile_email_queue", 3, "0.06"), ("profile_email_resolved", 1, "0.02")]


@pytest.mark.parametrize("payload", [{}, {"email": ""}, {"email": None}, {"email": "not one"}, {"emails": []}])
async def test_a_result_without_an_address_fails_and_costs_nothing_more(
    live: Directory, fake: Fake, payload: dict[str, Any]
) -> None:
    lookup_id = await queue(live)
    before = await live.read_balance()
    await live.send_callback(fake.callbacks[0], **payload)
    lookup = await live.read(f"/email-lookup/{lookup_id}")
    assert lookup == {"status": "failed", "email": None, "credits_consumed": 3}
    assert await live.read_balance() == before


async def test_only_the_secret_address_takes_a_result(live: Directory, fake: Fake) -> None:
    lookup_id = await queue(live)
    place, _, secret = fake.callbacks[0].rpartition("/")
    for address in (f"{place}/guess", f"{place.replace(lookup_id, lookup_id[::-1])}/{secret}"):
        answer = await live.send_callback(address, email="eve@evil.example")
        assert (answer.status_code, answer.json()["error"]) == (404, "lookup_not_found")
    assert (await live.read(f"/email-lookup/{lookup_id}"))["status"] == "pending"


async def test_who_guesses_an_address_takes_no_lock_of_the_app(
    live: Directory, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup_id = await queue(live)
    place, _, secret = fake.callbacks[0].rpartition("/")
    database = live.baobab.application.services.database
    open_unit, locks = database.writing_unit, list[Any]()

    def watch(**options: Any) -> Any:
        locks.append(options.get("lock"))
        return open_unit(**options)

    monkeypatch.setattr(database, "writing_unit", watch)
    for address in (f"{place}/guess", f"{place.replace(lookup_id, lookup_id[::-1])}/{secret}"):
        assert (await live.send_callback(address, email="eve@evil.example")).status_code == 404
    assert live.app not in locks
    assert (await live.send_callback(fake.callbacks[0], email="ada@acme.example")).status_code == 200
    assert live.app in locks


async def test_a_lookup_without_a_result_expires_after_a_day_and_a_late_result_changes_nothing(
    live: Directory, fake: Fake
) -> None:
    lookup_id = await queue(live)
    live.clock.advance(DAY - 60)
    await live.sweep()
    assert (await live.read(f"/email-lookup/{lookup_id}"))["status"] == "pending"
    live.clock.advance(60)
    await live.sweep()
    before = await live.read_balance()
    await live.send_callback(fake.callbacks[0], email="ada@acme.example")
    assert await live.read(f"/email-lookup/{lookup_id}") == {"status": "expired", "email": None, "credits_consumed": 3}
    assert await live.read_balance() == before


async def test_the_charge_is_never_more_than_the_balance(live: Directory, fake: Fake) -> None:
    await live.give(6 * CENT + 1)
    await queue(live)
    assert await live.read_balance() == 1
    await live.send_callback(fake.callbacks[0], email="ada@acme.example")
    rows = (await live.read("/usage"))["rows"]
    assert sorted((row["usd_cost"], row["usd_charged"]) for row in rows) == [("0.02", "0.000000001"), ("0.06", "0.06")]
    assert await live.read_balance() == 0


@pytest.mark.parametrize("variables", [{"BAOBAB_PEOPLE_PRICE_PERCENT": "0"}])
async def test_a_slot_without_a_price_has_no_gate(live: Directory) -> None:
    await live.give(0)
    answer = await live.ask("/profile", networkProfileUrl=PERSON)
    assert answer.json()["usage"] == {"creditsConsumed": 2, "usdCharged": 0.0, "cached": False}


async def test_a_profile_is_kept_for_thirty_days_and_not_found_for_seven(live: Directory, fake: Fake) -> None:
    nobody = f"{NETWORK}/in/nobody"
    for url, days in ((PERSON, 30), (nobody, 7)):
        first = (await live.ask("/profile", networkProfileUrl=url)).json()
        request_count = len(fake.requests)
        live.clock.advance(days * DAY - 60)
        again = (await live.ask("/profile", networkProfileUrl=url)).json()
        assert (again["usage"]["cached"], again["status"], len(fake.requests)) == (True, first["status"], request_count)
        live.clock.advance(60)
        late = (await live.ask("/profile", networkProfileUrl=url)).json()
        assert (late["usage"]["cached"], len(fake.requests)) == (False, request_count + 1)
    fresh = (await live.ask("/profile", networkProfileUrl=PERSON, liveFetch="force")).json()
    assert fresh["usage"]["cached"] is False
    assert fake.requests[-1]["query"]["use_cache"] == "if-recent"


async def test_a_failure_is_no_answer_and_leaves_what_was_read_before(live: Directory, fake: Fake) -> None:
    fake.refusals = [(503, {}, {})] * 2
    assert (await live.ask("/profile", networkProfileUrl=PERSON)).status_code == 502
    assert (await live.ask("/profile", networkProfileUrl=PERSON)).json()["usage"]["cached"] is False
    fake.refusals = [(503, {}, {})] * 2
    assert (await live.ask("/profile", networkProfileUrl=PERSON, liveFetch="force")).status_code == 502
    assert (await live.ask("/profile", networkProfileUrl=PERSON)).json()["usage"]["cached"] is True


async def test_a_person_is_erased_by_address(live: Directory, fake: Fake) -> None:
    await live.ask("/profile", networkProfileUrl=PERSON)
    lookup_id = await queue(live)
    await queue(live, f"{NETWORK}/in/person-2")
    answer = await live.ask("/erase", networkProfileUrl="HTTPS://linkedin.com/in/Person-1/")
    assert answer.json() == {
        "networkProfileUrl": "https://linkedin.com/in/person-1",
        "profiles_deleted": 1,
        "lookups_deleted": 1,
        "usage_rows_cleared": 2,
    }
    rows = (await live.read("/usage"))["rows"]
    assert sorted((row["usd_charged"], row["network_url"] is None) for row in rows) == [
        ("0.04", True),
        ("0.06", False),
        ("0.06", True),
    ]
    late = await live.send_callback(fake.callbacks[0], email="ada@acme.example")
    assert late.status_code == 404
    lookups = (await live.read("/email-lookups"))["lookups"]
    assert lookup_id not in [row["lookupId"] for row in lookups]
    assert (await live.ask("/profile", networkProfileUrl=PERSON)).json()["usage"]["cached"] is False


async def test_the_audit_log_says_who_looked_whom_up(live: Directory) -> None:
    await live.ask("/search/person", query="x")
    await live.ask("/profile", networkProfileUrl=PERSON)
    await live.ask("/profile", networkProfileUrl=PERSON)
    await queue(live)
    await live.ask("/erase", networkProfileUrl=PERSON)
    address = f"/v1/{live.app}/audit-logs?resource_id=https://linkedin.com/in/person-1"
    logs = (await live.baobab.client.get(address, headers=live.baobab.owner)).json()["logs"]
    events = ["people.erase", "people.email_queue", "people.profile", "people.profile"]
    assert sorted(each["event_type"] for each in logs) == sorted(events)
    assert all(each["actor_id"] and each["category"] == "ai" for each in logs)


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("queue"), st.booleans()),
        st.tuples(st.just("callback"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("expire"), st.integers(1, 2)),
    ),
    max_size=25,
)


@settings(max_examples=15)
@given(acts=ACTS)
async def test_any_order_loss_and_repetition_of_results_leaves_the_exact_charge(acts: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with start_fake() as fake:
            addresses = {"BAOBAB_PEOPLE_PRIMARY_URL": f"{fake.url}/api/v2", "BAOBAB_PEOPLE_SECONDARY_URL": fake.url}
            async with open_directory(Path(folder) / "data", {**LIVE, **addresses}) as directory:
                await run_acts(directory, fake, acts)


async def run_acts(directory: Directory, fake: Fake, acts: list[tuple[Any, ...]]) -> None:
    """Makes the acts, and compares with a model what was charged and what became of each lookup."""
    await directory.give(500 * CENT)
    before, charge = await directory.read_balance(), 0
    states: list[list[Any]] = []
    for kind, *parameters in acts:
        if kind == "queue":
            fails = parameters[0]
            if fails:
                fake.refusals = [(503, {}, {})]
            answer = await directory.ask("/profile/email", networkProfileUrl=PERSON)
            assert answer.status_code == (502 if fails else 200)
            if not fails:
                states.append([answer.json()["lookupId"], "pending", 0])
                charge += 6 * CENT
        elif kind == "callback" and parameters[0] < len(states):
            index, has_email = parameters
            await directory.send_callback(fake.callbacks[index], email="ada@acme.example" if has_email else "")
            if states[index][1] == "pending":
                states[index][1] = "resolved" if has_email else "failed"
                charge += 2 * CENT if has_email else 0
        elif kind == "expire":
            directory.clock.advance(parameters[0] * 12 * 3600)
            await directory.sweep()
            for state in states:
                state[2] += parameters[0] * 12
                if state[1] == "pending" and state[2] >= 24:
                    state[1] = "expired"
    assert before - await directory.read_balance() == charge
    lookups = {row["lookupId"]: row["status"] for row in (await directory.read("/email-lookups"))["lookups"]}
    assert lookups == {lookup_id: status for lookup_id, status, _ in states}
