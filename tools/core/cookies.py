"""The names of cookies: over https with a prefix, so that no site next door can set them for the parent domain."""


def name_cookie(base_url: str, name: str) -> str:
    """Returns the name of a cookie of a server. With `__Host-`, browsers take it from this host only, with `Path=/`."""
    return f"{'__Host-' if base_url.startswith('https:') else ''}{name}"
