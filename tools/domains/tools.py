"""/v1/{app_id}/custom-domains: add a name, see which records it needs, have them checked, and remove it."""

from typing import Any

from sqlalchemy import delete, insert, select

from baobab.runtime.net.record_resolver import RecordResolver
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Rest
from baobab.tools.core.auth.tables import custom_domains
from baobab.tools.core.call import Spent
from baobab.tools.core.limits.limits import spend_of_app
from baobab.tools.core.limits.plan_room import PlanLimitReached, require_room
from baobab.tools.core.liveness import InstallationIsCopy
from baobab.tools.domains.errors import DomainNotFound, DomainsNotInPlan, DomainTaken, HostnameInvalid
from baobab.tools.domains.findings import look
from baobab.tools.domains.hostnames import build_challenge, build_target, is_apex, normalise_hostname
from baobab.tools.domains.schemas import (
    AddedDomain,
    CheckedDomain,
    DnsRecord,
    Domain,
    DomainId,
    Domains,
    DomainState,
    Hostname,
    Method,
    NextAction,
    RemovedDomain,
)
from baobab.tools.domains.states import ACTIVE, PENDING, find_domain, find_holder, record_findings
from baobab.tools.domains.toolset import domains

_columns = custom_domains.c


class _Checks:
    """The bucket of checks, each of which asks name servers that strangers run."""

    def spend(self, call: Call, arguments: Any) -> Spent:
        return spend_of_app(call, "domain-checks", 20, 60)


@domains.tool(
    "POST /custom-domains",
    access=AppOwner("admin"),
    effect="write",
    raises=(HostnameInvalid, DomainTaken, DomainsNotInPlan, PlanLimitReached),
    audit=Audit("domain.add", category="app", action="create", resource="domain"),
    rest=Rest(status=201, examples={"hostname": "www.example.com"}),
    guard=Guard(grants=True),
)
async def domains_add(
    call: Call, app_id: AppId, hostname: Hostname, validation_method: Method | None = None
) -> AddedDomain:
    """Add a custom domain to an app: returns the DNS records that its owner sets. The app is then served there, too.

    Nothing is served at the name before a TXT record has proven that it is yours. The records are looked for every ten
    minutes.

    validation_method: `http` if a CNAME record leads the name to the app; `txt` for the top of a domain, such as
      `example.com`, which can have none. Null: whichever fits the name.
    """
    app, options = call.require_app(), call.services.options
    if app.plan.custom_domains == 0:
        raise DomainsNotInPlan(details={"plan": app.plan.name, "what": "custom domains", "limit": 0, "current": 0})
    name = normalise_hostname(hostname, options)
    method = validation_method or ("txt" if is_apex(name) else "http")
    if method == "http" and is_apex(name):
        raise HostnameInvalid(
            f"{name} is the top of a domain, which can have no CNAME record.",
            remediation='Add it with `validation_method`: "txt", or add `www.` and the name.',
        )
    names: Any = (await call.execute(select(_columns.hostname).where(_columns.app_id == app_id))).scalars().all()
    if name in names:
        raise DomainTaken("The app has this custom domain already.", remediation="Find it with op:domains_list.")
    if await find_holder(call.execute, name) is not None:
        raise DomainTaken(f"{name} is a custom domain of another app.")
    require_room("custom domains", app.plan, app.plan.custom_domains, len(names))
    domain_id = call.services.ids.uuid()
    row: dict[str, Any] = {
        "id": domain_id,
        "app_id": app_id,
        "hostname": name,
        "held_name": None,
        "method": method,
        "token": f"baobab-{call.services.ids.hex(40)}",
        "status": PENDING,
        "problems": [],
        "created_at": call.now,
        "asked_at": call.now,
        "next_check_at": call.now,
    }
    await call.execute(insert(custom_domains), row)
    call.audit.resource_id = domain_id
    call.audit.data["hostname"] = name
    stored_row: Any = await find_domain(call.execute, app_id, domain_id)
    records = _list_records(call, stored_row)
    return {
        "domain": _describe(call, stored_row),
        "cname_target": build_target(options, app.subdomain),
        "instructions": _instruct(call, stored_row),
        "verification_records": records,
        "ownership_verification": records[0],
        "_meta": {"next_actions": _list_next_actions(call, stored_row)},
    }


@domains.tool("GET /custom-domains", access=AppOwner(), effect="read")
async def domains_list(call: Call, app_id: AppId) -> Domains:
    """List the custom domains of an app, with their states and what is wrong with them."""
    query = select(custom_domains).where(_columns.app_id == app_id).order_by(_columns.hostname)
    rows = (await call.services.database.execute(query)).all()
    app = call.require_app()
    return {
        "domains": [_describe_checked(call, row) for row in rows],
        "cname_target": build_target(call.services.options, app.subdomain),
        "limit": app.plan.custom_domains,
    }


@domains.tool("GET /custom-domains/{domain_id}/status", access=AppOwner(), effect="read", raises=(DomainNotFound,))
async def domains_status(call: Call, app_id: AppId, domain_id: DomainId) -> DomainState:
    """Read the state of a custom domain as the last check left it: the records that it needs, and what is wrong."""
    return _describe_state(call, await _get_domain(call.services.database.execute, app_id, domain_id))


@domains.tool(
    "POST /custom-domains/{domain_id}/verify",
    access=AppOwner("admin"),
    effect="write",
    raises=(DomainNotFound, InstallationIsCopy),
    limit=_Checks(),
    audit=Audit("domain.verify", category="app", action="update", resource="domain"),
)
async def domains_verify(call: Call, app_id: AppId, domain_id: DomainId) -> DomainState:
    """Check the records of a custom domain now, at every resolver. One that failed is looked for again from then on."""
    row = await _get_domain(call.services.database.execute, app_id, domain_id)
    target = build_target(call.services.options, call.require_app().subdomain)
    # Before the transaction: an answer may take seconds.
    findings = await look(call.services.part(RecordResolver), row.hostname, row.method, row.token, target)
    await record_findings(call.unit, call.services, row, findings, is_asked=True)
    row = await _get_domain(call.execute, app_id, domain_id)
    call.audit.resource_id = domain_id
    call.audit.data |= {"hostname": row.hostname, "status": row.status}
    return _describe_state(call, row)


async def _preview_remove(call: Call, app_id: AppId, domain_id: DomainId) -> str:
    row = await _get_domain(call.services.database.execute, app_id, domain_id)
    if row.held_name is None:
        return f"Removes the custom domain {row.hostname}, at which nothing is served."
    return f"Removes the custom domain {row.hostname}: the app is no longer served there, and visitors get an error."


@domains.tool(
    "DELETE /custom-domains/{domain_id}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(DomainNotFound,),
    audit=Audit("domain.remove", category="app", action="delete", resource="domain"),
    guard=Guard(preview=_preview_remove),
)
async def domains_remove(call: Call, app_id: AppId, domain_id: DomainId) -> RemovedDomain:
    """Remove a custom domain: the app is no longer served there, at once. To be added again, it needs a new record."""
    row = await _get_domain(call.execute, app_id, domain_id)
    await call.execute(delete(custom_domains).where(_columns.id == domain_id))
    if row.held_name is not None:
        await call.services.notices.publish(call.unit, "app", app_id)
    call.audit.resource_id = domain_id
    call.audit.data["hostname"] = row.hostname
    return {"deleted": True, "id": domain_id, "hostname": row.hostname}


async def _get_domain(execute: Any, app_id: str, domain_id: str) -> Any:
    row = await find_domain(execute, app_id, domain_id)
    if row is None:
        raise DomainNotFound
    return row


def _list_records(call: Call, row: Any) -> list[DnsRecord]:
    """Returns the records that the owner of a name sets, the proof first."""
    proof: DnsRecord = {"type": "TXT", "name": build_challenge(row.hostname), "value": row.token}
    if row.method == "txt":
        return [proof]
    target = build_target(call.services.options, call.require_app().subdomain)
    return [proof, {"type": "CNAME", "name": row.hostname, "value": target}]


def _instruct(call: Call, row: Any) -> str:
    records = " and ".join(f"{each['type']} {each['name']} = {each['value']}" for each in _list_records(call, row))
    sentences = [f"Where the DNS of {row.hostname} is kept, set {records}, and keep what proves the name for good."]
    if row.method == "txt":
        target = build_target(call.services.options, call.require_app().subdomain)
        sentences.append(f"Lead the name to {target} with an ALIAS or ANAME record, or with the addresses that it has.")
    return " ".join(sentences)


def _list_next_actions(call: Call, row: Any) -> list[NextAction]:
    if row.status == ACTIVE and not row.problems:
        return [
            {"action": "open", "description": f"The app is at {call.services.options.build_address(row.hostname)}."}
        ]
    check = "Check the records now. Nothing is lost by waiting: they are also looked for without you."
    return [
        {"action": "set_records", "description": _instruct(call, row)},
        {"action": "check", "description": check, "tool": "domains_verify"},
    ]


def _describe(call: Call, row: Any) -> Domain:
    return {
        "id": row.id,
        "hostname": row.hostname,
        "status": row.status,
        "ssl_status": "active" if row.status == ACTIVE else "pending",
        "validation_method": row.method,
        "url": call.services.options.build_address(row.hostname),
        "created_at": row.created_at,
        "checked_at": row.checked_at,
        "verified_at": row.verified_at,
        "next_check_at": row.next_check_at,
    }


def _describe_checked(call: Call, row: Any) -> CheckedDomain:
    return {**_describe(call, row), "verification_errors": row.problems}


def _describe_state(call: Call, row: Any) -> DomainState:
    return {
        "domain": _describe_checked(call, row),
        "cname_target": build_target(call.services.options, call.require_app().subdomain),
        "instructions": _instruct(call, row),
        "verification_records": _list_records(call, row),
        "_meta": {"next_actions": _list_next_actions(call, row)},
    }
