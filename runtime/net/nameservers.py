"""Addresses of name servers, as settings have them."""

from ipaddress import ip_address


def parse_nameserver(text: str) -> str:
    """Returns an address with its port, such as `9.9.9.9:53` and `[2620:fe::fe]:53`. Raises ValueError."""
    address, port = text, "53"
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("must be addresses such as 9.9.9.9 and [2620:fe::fe]:53")
        port = rest[1:] or port
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("must have ports from 1 to 65535")
    parsed_address = ip_address(address)
    return f"[{parsed_address}]:{port}" if parsed_address.version == 6 else f"{parsed_address}:{port}"
