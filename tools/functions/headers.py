"""Headers of functions: which of a request they get, and which of their answers are sent.

Functions are served by the name of the API, where people sign in and the console is. So a function gets no cookies and
no keys of the platform; and its answers set none, say nothing for the whole name, and run in a sandbox of the browser.
"""

from collections.abc import Iterable, Sequence

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_PASSED_ON = _HOP_BY_HOP | {"cookie", "content-length", "expect", "x-organization-id", "x-platform-as-user"}
_NOT_SENT = _HOP_BY_HOP | {
    # Of the name as a whole, which belongs to the platform.
    "set-cookie",
    "set-cookie2",
    "clear-site-data",
    "strict-transport-security",
    "public-key-pins",
    "alt-svc",
    "nel",
    "report-to",
    "reporting-endpoints",
    "accept-ch",
    "critical-ch",
    "service-worker-allowed",
    "origin-agent-cluster",
    "www-authenticate",
    # The server's own.
    "content-length",
    "content-security-policy",
    "content-security-policy-report-only",
    "content-type",
    "date",
    "server",
    "x-accel-buffering",
    "x-content-type-options",
    "x-request-id",
}
_CORS = "access-control-"
SANDBOX = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"
"""What a page of a function may do: nothing that needs the origin at which it is served."""
_PLAIN = "text/plain; charset=utf-8"


def pass_on(headers: Iterable[tuple[str, str]], *, with_credential: bool) -> list[tuple[str, str]]:
    """Returns the headers of a request that a function gets.

    with_credential: whether it gets `authorization`: it does unless that is a key or a token of the platform.
    """
    kept_headers: list[tuple[str, str]] = []
    for name, value in headers:
        lower_name = name.lower()
        if lower_name in _NOT_PASSED_ON or (lower_name == "authorization" and not with_credential):
            continue
        kept_headers.append((lower_name, value))
    return kept_headers


def choose_answer_headers(headers: Sequence[tuple[str, str]]) -> tuple[str, list[tuple[bytes, bytes]]]:
    """Returns the content type of an answer, and its other headers as they are sent."""
    content_type = _PLAIN
    kept_headers: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        lower_name = name.lower()
        if lower_name == "content-type" and _is_sendable(value):
            content_type = value
        if lower_name in _NOT_SENT or lower_name.startswith(_CORS) or not _is_sendable(lower_name + value):
            continue
        kept_headers.append((lower_name.encode("latin-1"), value.encode("latin-1")))
    kept_headers.append((b"content-security-policy", SANDBOX.encode()))
    return content_type, kept_headers


def list_left_out(headers: Sequence[tuple[str, str]]) -> list[str]:
    """Names the headers of an answer that are not sent although the function may count on them."""
    told_names = {"set-cookie", "clear-site-data", "www-authenticate", "strict-transport-security"}
    names = {name.lower() for name, _ in headers}
    return sorted(name for name in names if name in told_names or name.startswith(_CORS))


def _is_sendable(text: str) -> bool:
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return all(character >= " " or character == "\t" for character in text)
