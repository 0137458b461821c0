"""/v1/{app_id}/people: search people and companies, read profiles, and look up e-mail addresses."""

from typing import Annotated

from pydantic import Field
from sqlalchemy import delete, func, select, update

from baobab.tools.core import EVERYBODY, AppId, AppOwner, Audit, Call, Guard, JsonObject, Mcp, Rest
from baobab.tools.core.limits.money import dollars
from baobab.tools.core.simulators import mark_simulated
from baobab.tools.core.waiting import Waits
from baobab.tools.people.addresses import normalise_address
from baobab.tools.people.errors import AddressInvalid, EmailsDisabled, LookupNotFound, TokenInvalid
from baobab.tools.people.lookups import queue_lookup, read_email, take_result
from baobab.tools.people.paid_calls import set_headers
from baobab.tools.people.profiles import read_profile
from baobab.tools.people.providers.simulator import HOST
from baobab.tools.people.schemas import (
    CallbackToken,
    CompanySearch,
    EmailLookup,
    Erasure,
    Filter,
    LiveFetch,
    LookupId,
    Lookups,
    NextToken,
    PageSize,
    PersonSearch,
    ProfileResult,
    ProfileUrl,
    Query,
    QueuedLookup,
    Receipt,
    UsageRows,
)
from baobab.tools.people.searches import run_search
from baobab.tools.people.slots import FREE, Slots
from baobab.tools.people.tables import FREEZES, lookups, profiles, usage
from baobab.tools.people.toolset import ASKING, people

_MOST_LISTED = 100
_EXAMPLE = f"https://{HOST}/in/ada-adeyemi-0"
_OWNER = AppOwner()


def _audit(event: str, resource: str, action: str = "invoke") -> Audit:
    return Audit(event=f"people.{event}", category="ai", action=action, resource=resource)


@people.tool(
    "POST /search/person",
    access=_OWNER,
    effect="external",
    raises=(*ASKING, TokenInvalid),
    audit=_audit("search_person", "search"),
    taints=True,
    rest=Rest(examples={"currentRoleTitle": "Software Engineer", "country": "Germany", "pageSize": 5}),
)
async def people_search_person(
    call: Call,
    app_id: AppId,
    query: Query = "",
    currentRoleTitle: Filter = "",
    pastRoleTitle: Filter = "",
    currentCompanyName: Filter = "",
    currentCompanyIndustry: Filter = "",
    country: Filter = "",
    region: Filter = "",
    city: Filter = "",
    educationSchoolName: Filter = "",
    educationDegreeName: Filter = "",
    educationFieldOfStudy: Filter = "",
    pageSize: PageSize | None = None,
    nextToken: NextToken | None = None,
    enrichProfiles: bool = True,
) -> PersonSearch:
    """Search people by free text, or by fields. It costs credits, unless nothing is found.

    query: free text; it takes priority over the fields.
    country: where the person lives, as the provider writes it: some take codes such as `DE`.
    pageSize: the most results; 10 if it is left out.
    nextToken: `next_token` of the nextPage of an earlier answer, whose search goes on. An empty one is refused, and
        costs nothing.
    enrichProfiles: false for the addresses alone, where the provider has them without profiles.
    """
    del app_id
    filters = {
        "currentRoleTitle": currentRoleTitle,
        "pastRoleTitle": pastRoleTitle,
        "currentCompanyName": currentCompanyName,
        "currentCompanyIndustry": currentCompanyIndustry,
        "country": country,
        "region": region,
        "city": city,
        "educationSchoolName": educationSchoolName,
        "educationDegreeName": educationDegreeName,
        "educationFieldOfStudy": educationFieldOfStudy,
    }
    result: PersonSearch = await run_search(
        call, "search_person", query, filters, pageSize, nextToken, enrich=enrichProfiles
    )
    return result


@people.tool(
    "POST /search/company",
    access=_OWNER,
    effect="external",
    raises=(*ASKING, TokenInvalid),
    audit=_audit("search_company", "search"),
    taints=True,
    rest=Rest(examples={"industry": "Software", "country": "Germany"}),
)
async def people_search_company(
    call: Call,
    app_id: AppId,
    query: Query = "",
    industry: Filter = "",
    country: Filter = "",
    employeeCountMax: Annotated[int, Field(ge=1, le=100_000_000)] | None = None,
    pageSize: PageSize | None = None,
    nextToken: NextToken | None = None,
    enrichProfiles: bool = True,
) -> CompanySearch:
    """Search companies by free text, or by fields. It costs credits, unless nothing is found.

    query: free text; it takes priority over the fields.
    employeeCountMax: the most employees.
    pageSize: the most results; 10 if it is left out.
    nextToken: `next_token` of the nextPage of an earlier answer, whose search goes on. An empty one is refused, and
        costs nothing.
    enrichProfiles: false for the addresses alone, where the provider has them without the rest.
    """
    del app_id
    filters = {"industry": industry, "country": country, "employeeCountMax": employeeCountMax}
    result: CompanySearch = await run_search(
        call, "search_company", query, filters, pageSize, nextToken, enrich=enrichProfiles
    )
    return result


@people.tool(
    "POST /profile",
    access=_OWNER,
    effect="external",
    raises=(*ASKING, AddressInvalid),
    audit=_audit("profile", "person"),
    taints=True,
    rest=Rest(examples={"networkProfileUrl": _EXAMPLE}),
)
async def people_profile(
    call: Call, app_id: AppId, networkProfileUrl: ProfileUrl, liveFetch: LiveFetch = ""
) -> ProfileResult:
    """Read the profile of a person. It costs credits, unless the app has read it in the last 30 days.

    networkProfileUrl: the address of the profile.
    liveFetch: `force` reads it from the provider again.
    """
    del app_id
    url = normalise_address(networkProfileUrl)
    result: ProfileResult = await read_profile(call, url, force=liveFetch == "force")
    return result


def _is_over(lookup: EmailLookup) -> bool:
    return lookup["status"] != "pending"


@people.tool(
    "POST /profile/email",
    access=_OWNER,
    effect="external",
    raises=(*ASKING, AddressInvalid, EmailsDisabled),
    audit=_audit("email_queue", "person"),
    rest=Rest(examples={"networkProfileUrl": _EXAMPLE}),
)
async def people_email_queue(call: Call, app_id: AppId, networkProfileUrl: ProfileUrl) -> QueuedLookup:
    """Look up the work e-mail address of a person; op:people_email_lookup reads the result. It costs credits.

    networkProfileUrl: the address of the person's profile.
    """
    del app_id
    result: QueuedLookup = await queue_lookup(call, normalise_address(networkProfileUrl))
    return result


@people.tool(
    "GET /email-lookup/{lookup_id}",
    access=_OWNER,
    effect="read",
    raises=(LookupNotFound,),
    taints=True,
    waits=Waits(_is_over),
)
async def people_email_lookup(call: Call, app_id: AppId, lookup_id: LookupId) -> EmailLookup:
    """Read the result of an e-mail lookup. Poll it until its status is not `pending`.

    lookup_id: the lookupId that op:people_email_queue has answered.
    """
    columns = lookups.c
    query = select(lookups).where(columns.app_id == app_id, columns.id == lookup_id)
    async with call.reading() as execute:
        row = (await execute(query)).first()
    if row is None:
        raise LookupNotFound
    slots = call.services.part(Slots)
    slot = slots.slots.get(slots.route("profile_email"))
    if slot is not None:
        set_headers(call, slot, FREE, 0)
    result: EmailLookup = {"status": row.status, "email": row.email, "credits_consumed": row.credits}
    if row.simulated:
        return mark_simulated(call, result)
    return result


@people.tool("GET /email-lookups", access=_OWNER, effect="read", taints=True)
async def people_email_lookups(call: Call, app_id: AppId) -> Lookups:
    """List the last 100 e-mail lookups of an app, newest first."""
    query = select(lookups).where(lookups.c.app_id == app_id).order_by(lookups.c.created_at.desc(), lookups.c.id)
    async with call.reading() as execute:
        rows = (await execute(query.limit(_MOST_LISTED))).all()
    return {
        "lookups": [
            {
                "lookupId": row.id,
                "networkProfileUrl": row.network_url,
                "status": row.status,
                "email": row.email,
                "credits_consumed": row.credits,
                "created_at": row.created_at,
                "ended_at": row.ended_at,
                "simulated": row.simulated,
            }
            for row in rows
        ]
    }


@people.tool(
    "POST /email-callback/{lookup_id}/{token}",
    access=EVERYBODY,
    effect="write",
    raises=(LookupNotFound,),
    audit=Audit(event="people.email_result", category="ai", action="update", resource="lookup"),
    rest=Rest(body="result", examples={"result": {"email": "ada@shop.example"}}),
    mcp=Mcp(offered=False),
)
async def people_email_callback(
    call: Call, app_id: AppId, lookup_id: LookupId, token: CallbackToken, result: JsonObject
) -> Receipt:
    """Take what a provider has found, at an address that only it knows.

    A second result of a lookup changes nothing. Fields that are not known are ignored.
    """
    call.audit.resource_id = lookup_id
    await take_result(call.services, call.stores.database, app_id, lookup_id, token, read_email(result))
    return {"received": True}


@people.tool("GET /usage", access=_OWNER, effect="read")
async def people_usage(call: Call, app_id: AppId) -> UsageRows:
    """List the last 100 calls of people that an app has made, with what they cost; newest first."""
    query = select(usage).where(usage.c.app_id == app_id).order_by(usage.c.created_at.desc(), usage.c.id)
    async with call.reading() as execute:
        rows = (await execute(query.limit(_MOST_LISTED))).all()
    return {
        "rows": [
            {
                "id": row.id,
                "action": row.action,
                "credits_consumed": row.credits,
                "usd_cost": dollars(row.cost),
                "usd_charged": dollars(row.charged),
                "response_status": row.response_status,
                "network_url": row.network_url,
                "created_at": row.created_at,
                "simulated": row.simulated,
            }
            for row in rows
        ]
    }


async def _preview_erase(call: Call, app_id: AppId, networkProfileUrl: ProfileUrl) -> str:
    url = normalise_address(networkProfileUrl)
    async with call.reading() as execute:
        count_profiles, count_lookups = [
            (
                await execute(
                    select(func.count()).select_from(table).where(table.c.app_id == app_id, table.c.network_url == url)
                )
            ).scalar_one()
            for table in (profiles, lookups)
        ]
    return f"It would erase {count_profiles} profiles and {count_lookups} lookups of an address for good:\n{url}"


@people.tool(
    "POST /erase",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(AddressInvalid,),
    audit=_audit("erase", "person", "delete"),
    rest=Rest(examples={"networkProfileUrl": _EXAMPLE}),
    guard=Guard(preview=_preview_erase),
)
async def people_erase(call: Call, app_id: AppId, networkProfileUrl: ProfileUrl) -> Erasure:
    """Erase what an app keeps of a person: the profile, and e-mail lookups with what they found.

    Rows of usage keep their amounts and lose the address. The audit log still says who looked the address up.

    networkProfileUrl: the address of the person's profile.
    """
    url = normalise_address(networkProfileUrl)
    call.audit.resource_id = url[:200]
    async with FREEZES.writing(call) as unit:
        is_profile = (profiles.c.app_id == app_id, profiles.c.network_url == url)
        is_lookup = (lookups.c.app_id == app_id, lookups.c.network_url == url)
        is_usage = (usage.c.app_id == app_id, usage.c.network_url == url)
        profiles_deleted = (await unit.execute(delete(profiles).where(*is_profile))).rowcount
        lookups_deleted = (await unit.execute(delete(lookups).where(*is_lookup))).rowcount
        usage_rows_cleared = (await unit.execute(update(usage).where(*is_usage).values(network_url=None))).rowcount
    return {
        "networkProfileUrl": url,
        "profiles_deleted": profiles_deleted,
        "lookups_deleted": lookups_deleted,
        "usage_rows_cleared": usage_rows_cleared,
    }
