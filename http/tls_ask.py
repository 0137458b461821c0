"""/tls/ask: whether a proxy on this machine may get a certificate for a name, as Caddy asks before the first visit.

Every answer takes one statement, whatever the name is, and no look into the DNS: anybody can begin a handshake.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from sqlalchemy import bindparam, or_, select
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baobab.http.hosts import Host, Hosts, is_loopback, read_authority
from baobab.tools.core import BaobabError
from baobab.tools.core.auth.tables import apps, custom_domains
from baobab.tools.core.registry import Registry
from baobab.tools.core.services import Services
from baobab.tools.sites.building import find_deployment

PATH = "/tls/ask"
_LONGEST = 253
_FORWARDING = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_IS_KNOWN = select(
    or_(
        select(custom_domains.c.id).where(custom_domains.c.held_name == bindparam("domain")).exists(),
        select(apps.c.id).where(apps.c.subdomain == bindparam("label")).exists(),
        select(apps.c.id).where(apps.c.id == bindparam("app_id")).exists(),
    ).label("is_known")
)


def tls_ask_route(registry: Registry) -> Route:
    """Returns the route. Others than programs on this machine are answered as if every name were unknown."""
    services = registry.services
    options = services.options
    hosts = Hosts(
        (urlsplit(options.base_url).hostname or "", *options.allowed_hosts),
        options.base_domain,
        options.files_domain,
        options.sites_domain,
        find_app=services.directory.app_id_at_domain,
    )

    async def answer(request: Request) -> Response:
        name = read_authority(request.query_params.get("domain", "")[: _LONGEST + 1].lower())
        status = 404
        if _is_from_here(request):
            try:
                status = 200 if await _may_have_certificate(services, hosts, name) else 404
            except BaobabError as error:
                status = error.status
        return Response(b"", status, {"cache-control": "no-store"})

    return Route(PATH, answer, methods=["GET"], include_in_schema=False)


def _is_from_here(request: Request) -> bool:
    """Returns whether a program on this machine asks by itself, and does not pass on what somebody else asked."""
    try:
        is_near = request.client is not None and ip_address(request.client.host).is_loopback
    except ValueError:
        return False
    host = read_authority(request.headers.get("host", "").lower())
    return is_near and is_loopback(host) and not any(name in request.headers for name in _FORWARDING)


async def _may_have_certificate(services: Services, hosts: Hosts, name: str) -> bool:
    host = hosts.find_own(name.encode()) if name.isascii() and len(name) <= _LONGEST else None
    if host is None:
        # Beside a custom domain's, so that the statement is the same.
        host = Host(name if name.isascii() and len(name) <= _LONGEST else "")
        is_own = False
    else:
        is_own = not host.is_of_app and host.files_of is None and not is_loopback(host.name)
    app_id = host.files_of or (host.preview_of or ("",))[0]
    values = {"domain": host.name, "label": host.subdomain or "", "app_id": app_id}
    is_known = bool((await services.database.execute(_IS_KNOWN, values)).scalar())
    if is_known and host.preview_of is not None:
        return await _has_deployment(services, *host.preview_of)
    return is_own or is_known


async def _has_deployment(services: Services, app_id: str, deployment_id: str) -> bool:
    """Returns whether a preview can be shown. Nobody guesses its name, so that it may take longer."""
    app = await services.directory.app(app_id)
    async with services.stores_of(app.region).database.reading() as connection:
        return await find_deployment(connection.execute, app_id, deployment_id) is not None
