"""/oauth/programs: the programs that have access as an account."""

from typing import cast

from sqlalchemy import func, or_, select

from baobab.tools.core import AnyAccount, Audit, Call, Uuid
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.tables import api_keys, apps, organisations
from baobab.tools.core.guard.escaping import escape_text
from baobab.tools.oauth.errors import ProgramNotFound
from baobab.tools.oauth.schemas import Program, Programs, Revoked
from baobab.tools.oauth.tables import oauth_grants
from baobab.tools.oauth.toolset import oauth

_NAMES = ("client_name", "organization_name", "only_app_name")


@oauth.tool("GET /oauth/programs", access=AnyAccount(keys=False), effect="read")
async def oauth_programs_list(call: Call) -> Programs:
    """List the programs that have access to this server as you, by OAuth."""
    grant, key = oauth_grants.c, api_keys.c
    query = (
        select(api_keys, grant.client_id, grant.client_name, grant.redirect_host, grant.scope)
        .add_columns(
            organisations.c.name.label("organization_name"),
            func.coalesce(apps.c.display_name, apps.c.name).label("only_app_name"),
        )
        .add_columns(key.organisation_id.label("organization_id"))
        .join(oauth_grants, grant.key_id == key.id)
        .join(organisations, organisations.c.id == key.organisation_id)
        .outerjoin(apps, apps.c.id == key.only_app_id)
        .where(key.account_id == call.account.account_id, key.revoked_at.is_(None))
        .where(or_(key.ends_at.is_(None), key.ends_at > call.now))
        .order_by(key.created_at.desc())
    )
    rows = (await call.execute(query)).all()
    programs = [{name: getattr(row, name) for name in Program.__annotations__} for row in rows]
    for program in programs:
        # Names may date from before invisible characters were refused.
        program |= {name: escape_text(program[name]) for name in _NAMES if program[name] is not None}
    return {"programs": cast(list[Program], programs)}


@oauth.tool(
    "DELETE /oauth/programs/{program_id}",
    access=AnyAccount(keys=False),
    effect="destructive",
    raises=(ProgramNotFound,),
    audit=Audit("oauth.program.revoke", category="auth", action="delete", resource="api_key"),
)
async def oauth_programs_revoke(call: Call, program_id: Uuid) -> Revoked:
    """Revoke a program's access at once, and everything that it handed out.

    program_id: the program, by the `id` of op:oauth_programs_list.
    """
    grants = select(oauth_grants.c.key_id).where(oauth_grants.c.key_id == program_id)
    revoked_count = await keys.revoke(call, api_keys.c.id.in_(grants), api_keys.c.account_id == call.account.account_id)
    if not revoked_count:
        raise ProgramNotFound
    call.audit.resource_id = program_id
    return {"revoked": True}
