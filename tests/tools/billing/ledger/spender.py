"""A process that spends: run by tests, several at once, and killed by them.

spender.py URL grab COUNT AMOUNT ORGANISATION      reserve so often at once; prints how many were granted
spender.py URL churn CALLERS ORGANISATION...       reserve and settle for ever; prints what it does as it does it

It prints `ready` and begins when it is told to by a line.
"""

import asyncio
import random
import sys

from baobab.storage.clock import Ids
from baobab.storage.sql.databases import database_at
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.core.limits.credits import CreditsExhausted, Usage
from tests.clock import FixedClock


def write_line(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def grab(credits_: Credits, count: int, amount: int, organisation_id: str) -> None:
    async def one() -> bool:
        try:
            await credits_.reserve(organisation_id, amount, purpose="grab", ttl_seconds=60)
        except CreditsExhausted:
            return False
        return True

    write_line("granted", sum(await asyncio.gather(*[one() for _ in range(count)])))


async def churn(credits_: Credits, callers: int, organisation_ids: list[str]) -> None:
    async def caller(number: int) -> None:
        chance = random.Random(number)
        while True:
            organisation_id = chance.choice(organisation_ids)
            reservation = await credits_.reserve(
                organisation_id, 1000, app_id=f"app_{number % 2}", key_id="key", purpose="churn", ttl_seconds=60
            )
            cost = chance.randint(1, 2000)
            write_line("settling", reservation.id, organisation_id, cost)
            await credits_.settle(reservation, cost, Usage("m", 1, 1))
            write_line("settled", reservation.id)

    await asyncio.gather(*[caller(number) for number in range(callers)])


async def main(url: str, what: str, *arguments: str) -> None:
    database = database_at(url)
    await database.open()
    credits_ = Credits(database, FixedClock(), Ids())
    write_line("ready")
    await asyncio.to_thread(sys.stdin.readline)
    if what == "grab":
        await grab(credits_, int(arguments[0]), int(arguments[1]), arguments[2])
    else:
        await churn(credits_, int(arguments[0]), list(arguments[1:]))
    await credits_.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
