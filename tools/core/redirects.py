"""The addresses to which a browser may be sent on an app's behalf: those of its own pages (document 4, A5)."""

from urllib.parse import urlsplit

from baobab.tools.core.call import Call

_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def is_listed(call: Call, address: str, *, localhost: bool) -> bool:
    """Returns whether the origin of an address is the app's: listed among its origins, or that of one of its own hosts.

    localhost: whether addresses of the browser's own machine are, too.
    """
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        return False
    if any(character in address for character in "\\\r\n\t ") or parts.fragment:
        return False
    if parts.hostname in _THIS_MACHINE and localhost:
        return True
    app, options = call.require_app(), call.services.options
    subdomains = [f"{app.subdomain}.{domain}" for domain in (options.base_domain, options.sites_domain) if domain]
    for host in (*subdomains, *app.domains):
        own = urlsplit(options.build_address(host))
        if (parts.scheme, parts.hostname, port) == (own.scheme, own.hostname, own.port):
            return True
    return f"{parts.scheme}://{parts.hostname}" + (f":{port}" if port else "") in app.allowed_origins
