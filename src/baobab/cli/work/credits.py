"""`baobab credits`: shows and changes what organisations may spend."""

from collections.abc import Iterator

from sqlalchemy import select

from baobab.tools.billing.ledger.account import Account
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.ledger.errors import NoCreditAccount
from baobab.tools.billing.tables import credit_top_ups
from baobab.tools.core.auth.tables import accounts, members, organisations
from baobab.tools.core.limits.money import dollars
from baobab.tools.core.services import Services


async def show_credits(services: Services, organisation: str) -> list[str]:
    """Returns the credits of an organisation, as lines for people. Raises NoCreditAccount."""
    return await _credit_lines(services.part(Credits), await find_organisation(services, organisation))


async def top_up(services: Services, organisation: str, amount: int, reference: str) -> list[str]:
    """Adds nano-dollars, once for each reference, and returns the new state as lines. Raises NoCreditAccount,
    TopUpConflict.
    """
    organisation_id = await find_organisation(services, organisation)
    async with services.database.writing_unit(lock=organisation_id) as unit:
        same_top_up = (credit_top_ups.c.organisation_id == organisation_id, credit_top_ups.c.reference == reference)
        before = (await unit.execute(select(credit_top_ups.c.amount).where(*same_top_up))).first()
        await services.part(Credits).top_up(organisation_id, amount, reference, unit=unit)
        if before is None:
            data = {"amount_usd": dollars(amount)}
            await services.audit_log.record_operator(unit, "credits.top_up", organisation_id, "top_up", reference, data)
    return await _credit_lines(services.part(Credits), organisation_id)


async def set_terms(services: Services, organisation: str, allowance: int | None, floor: int | None) -> list[str]:
    """Sets an organisation's own terms, in nano-dollars; None means the terms of its plan. Returns the new state as
    lines. Raises NoCreditAccount.
    """
    organisation_id = await find_organisation(services, organisation)
    terms_text = {"allowance_usd": allowance, "floor_usd": floor}
    data = {name: None if amount is None else dollars(amount) for name, amount in terms_text.items()}
    async with services.database.writing_unit(lock=organisation_id) as unit:
        await services.part(Credits).set_terms(organisation_id, allowance=allowance, floor=floor, unit=unit)
        await services.audit_log.record_operator(
            unit, "credits.terms", organisation_id, "organisation", organisation_id, data
        )
    return await _credit_lines(services.part(Credits), organisation_id)


async def find_organisation(services: Services, text: str) -> str:
    """Returns the id of an organisation. `text` is that id, or the e-mail address of the account whose personal
    organisation it is. Raises NoCreditAccount.
    """
    query = select(organisations.c.id).where(organisations.c.id == text)
    if "@" in text:
        owner = select(members.c.organisation_id).join(accounts).where(accounts.c.email == text.lower())
        is_owned = organisations.c.id.in_(owner.where(members.c.role == "owner"))
        query = select(organisations.c.id).where(organisations.c.personal, is_owned)
    async with services.database.reading() as connection:
        organisation_id: str | None = (await connection.execute(query)).scalar()
    if organisation_id is None:
        raise NoCreditAccount(
            remediation="Give its id, or the e-mail address of the account whose personal organisation it is."
        )
    return organisation_id


async def _credit_lines(credits_: Credits, organisation: str) -> list[str]:
    account = await credits_.account(organisation)
    budgets = [
        f"budget {dollars(budget.most)} a {budget.period} for the {budget.subject} {budget.subject_id}, "
        f"{dollars(budget.spent_nanos)} spent"
        for budget in await credits_.budgets(organisation)
    ]
    return [f"organisation {organisation}", *_balance_lines(account), *budgets]


def _balance_lines(account: Account) -> Iterator[str]:
    balance, terms = account.balance, account.terms
    if balance.allowance is None or balance.available is None or terms.allowance is None:
        yield "allowance no cap"
    else:
        how_often = "once" if terms.once else "a month"
        yield f"allowance {dollars(terms.allowance)} {how_often}, {dollars(balance.allowance)} left"
    yield f"topped up {dollars(balance.credits)} left"
    yield f"floor {dollars(balance.floor)}"
    yield f"reserved {dollars(balance.reserved_nanos)}"
    if balance.available is not None:
        yield f"available {dollars(max(0, balance.available))}"
