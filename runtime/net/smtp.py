"""Sends mail to an SMTP server. Encryption is required unless the server is on this machine."""

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.message import EmailMessage
from urllib.parse import parse_qs, unquote, urlsplit

from baobab.runtime.jobs.job_slots import network_wait
from baobab.runtime.net.addresses import EgressError

Dial = Callable[[str, int], Awaitable[socket.socket]]
"""Connects to a host and a port after checking the address. Raises EgressError and OSError."""

_TIMEOUT_SECONDS = 20.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class MailRefused(Exception):
    """The server refuses this mail for good. The message says why, in the server's words."""


class MailDelayed(Exception):
    """The server cannot be reached, or cannot take the mail now. The message says why."""


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """A mail server, as the setting names it: `smtp://USER:PASSWORD@HOST:587`, `smtps://HOST`, `smtp://HOST?tls=none`.

    `smtp` begins unencrypted and must upgrade (STARTTLS) before anything else is sent. `tls=none` skips that, and is
    allowed only without credentials or on this machine.
    """

    host: str
    port: int
    implicit_tls: bool
    start_tls: bool | None
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> "SmtpServer":
        """Parses a setting. Raises ValueError, whose message never contains the password."""
        parts = urlsplit(url)
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError("must be smtp://HOST:PORT or smtps://HOST:PORT, with USER:PASSWORD@ where it wants them")
        options = parse_qs(parts.query)
        if options not in ({}, {"tls": ["none"]}):
            raise ValueError("takes no option but ?tls=none")
        implicit, in_clear = parts.scheme == "smtps", bool(options)
        if in_clear and (implicit or (parts.username and parts.hostname not in _LOOPBACK)):
            raise ValueError("?tls=none goes with smtp:// and without a password: others could read it on its way")
        is_here = parts.hostname in _LOOPBACK
        start_tls = False if implicit or in_clear else None if is_here else True
        return cls(
            parts.hostname,
            parts.port or (465 if implicit else 25 if in_clear or is_here else 587),
            implicit,
            start_tls,
            unquote(parts.username) if parts.username else None,
            unquote(parts.password) if parts.password else None,
        )


async def send_message(server: SmtpServer, message: EmailMessage, dial: Dial | None = None) -> str:
    """Sends a mail to a server, and returns the server's answer. Raises MailRefused and MailDelayed.

    dial: connects to a server that a user has named. The operator's own server is connected to without checks.
    """
    import aiosmtplib

    connected_socket = None if dial is None else await _connect(server, dial)
    client = aiosmtplib.SMTP(
        hostname=server.host,
        port=server.port if connected_socket is None else None,
        sock=connected_socket,
        use_tls=server.implicit_tls,
        start_tls=server.start_tls,
        # Nothing can listen in between on this machine, and a relay's certificate is usually self-signed.
        validate_certs=dial is not None or server.host not in _LOOPBACK,
        username=server.username,
        password=server.password,
        timeout=_TIMEOUT_SECONDS,
    )
    try:
        async with network_wait(), asyncio.timeout(3 * _TIMEOUT_SECONDS), client:
            _, answer = await client.send_message(message)
            return _write_on_one_line(answer)
    except aiosmtplib.SMTPRecipientsRefused as exc:
        first = exc.recipients[0]
        raise _judge(first.code, first.message) from exc
    except aiosmtplib.SMTPAuthenticationError as exc:
        # The mail is right and the settings are not: it waits until they are.
        raise MailDelayed(f"the server refuses the user name and password: {exc.code} {exc.message}") from exc
    except aiosmtplib.SMTPResponseException as exc:
        raise _judge(exc.code, exc.message) from exc
    except ssl.SSLCertVerificationError as exc:
        raise MailDelayed(f"the server's certificate is not trusted: {exc.verify_message}") from exc
    except aiosmtplib.SMTPException as exc:
        # No STARTTLS, no AUTH, no answer: the library says which.
        raise MailDelayed(f"the server cannot be used: {_write_on_one_line(str(exc))}") from exc
    except (smtplib.SMTPException, OSError, TimeoutError) as exc:
        raise MailDelayed(f"the server does not answer: {type(exc).__name__}") from exc
    except ValueError as exc:
        # An address that cannot be written in a mail at all.
        raise MailRefused(f"the mail cannot be written: {exc}") from exc


async def _connect(server: SmtpServer, dial: Dial) -> socket.socket:
    try:
        async with network_wait(), asyncio.timeout(_TIMEOUT_SECONDS):
            return await dial(server.host, server.port)
    except EgressError as exc:
        raise MailRefused(f"the server's address is refused: {exc.message}") from exc
    except (OSError, TimeoutError) as exc:
        raise MailDelayed(f"the server cannot be reached: {type(exc).__name__}") from exc


def _write_on_one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _judge(code: int, message: str) -> MailRefused | MailDelayed:
    text = _write_on_one_line(f"{code} {message}")
    return MailRefused(text) if code >= 500 else MailDelayed(text)
