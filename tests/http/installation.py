"""An installation for a whole test module, asked with exactly the bytes that a test names."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from baobab.composition import Application
from baobab.server import Server
from baobab.settings import load_settings
from tests.backends import prepare_data
from tests.users import mint_user_token

KEY = "bb_sk_" + "T" * 40
HOST = "127.0.0.1:8000"
_NAMES = itertools.count(1)

Headers = Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    status: int
    pairs: list[tuple[str, str]]
    content: bytes

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.pairs)

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True)
class App:
    id: str
    anon_key: str
    subdomain: str
    kv: str
    """Where its store begins."""


@dataclass
class Installation:
    server: Server
    application: Application

    @property
    def owner(self) -> dict[str, str]:
        return bearer_headers(KEY)

    async def ask(
        self,
        method: str,
        target: str,
        headers: Headers | None = None,
        body: Any = None,
        *,
        content: bytes | None = None,
        pieces: Sequence[bytes] | None = None,
        host: str = HOST,
        address: str = "127.0.0.1",
    ) -> Answer:
        """One request. The target goes out as it is, byte for byte; `body` is sent as JSON, `content` as it is.

        pieces: the content as it arrives.
        """
        raw_path, _, query = target.encode("latin-1").partition(b"?")
        body_bytes = content if content is not None else b"" if body is None else json.dumps(body).encode()
        pairs = [(b"host", host.encode("latin-1"))]
        if body_bytes:
            pairs.append((b"content-length", b"%d" % len(body_bytes)))
        pairs += [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
        }
        scope |= {"path": target.partition("?")[0], "raw_path": raw_path, "query_string": query, "root_path": ""}
        scope |= {"headers": pairs, "client": (address, 40000), "server": ("127.0.0.1", 8000)}
        messages: list[dict[str, Any]] = []
        parts = [body_bytes] if pieces is None else [*pieces, b""]
        last = len(parts) - 1
        incoming = iter([{"type": "http.request", "body": part, "more_body": n < last} for n, part in enumerate(parts)])

        async def receive() -> dict[str, Any]:
            message = next(incoming, None)
            # The client stays on the line until it has its answer.
            return message if message is not None else await asyncio.Future()

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        await self.server(scope, receive, send)
        start = messages[0]
        answer_pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
        return Answer(start["status"], answer_pairs, b"".join(message.get("body", b"") for message in messages[1:]))

    async def create_app(self, by: Headers | None = None, **settings: Any) -> App:
        """A new app of the first account, or of whoever `by` is."""
        answer = await self.ask("POST", "/init", by or self.owner, {"name": f"app-{next(_NAMES)}", **settings})
        assert answer.status == 201, answer.content
        row = answer.json
        return App(row["app_id"], row["anon_key"], row["subdomain"], f"/v1/{row['app_id']}/kv")

    async def user_headers(self, app: App, user_id: str, lifetime: int = 3600, **claims: Any) -> dict[str, str]:
        """Headers of a signed-in user of an app, who is made if there is no such user yet."""
        return bearer_headers(await mint_user_token(self.application, app.id, user_id, lifetime, **claims))

    async def create_account(self, email: str) -> dict[str, str]:
        """Headers of a new account with a token of its own."""
        body = {"email": email, "password": "correct Horse 7!", "name": "Somebody"}
        answer = await self.ask("POST", "/platform/signup", body=body)
        assert answer.status == 201, answer.content
        return await self.create_token(answer.json["user"]["id"], answer.json["organization"]["id"])

    async def create_token(self, account_id: str, organization_id: str, lifetime: int = 3600) -> dict[str, str]:
        claims = {"sub": account_id, "org_id": organization_id}
        return bearer_headers(await self.application.services.signers.mint("platform", claims, lifetime))

    async def create_key(self, by: Headers, **options: Any) -> dict[str, str]:
        answer = await self.ask("POST", "/api-keys", by, {"name": "a key", **options})
        assert answer.status == 201, answer.content
        return bearer_headers(answer.json["key"])

    async def expose(self, app: App, *rules: tuple[str, str, str]) -> None:
        """Replace the app's rules by (pattern, read, write) each."""
        body = {"rules": [{"pattern": pattern, "read": read, "write": write} for pattern, read, write in rules]}
        assert (await self.ask("PUT", f"{app.kv}/_expose", self.owner, body)).status == 204

    async def put(self, app: App, key: str, value: Any = 1, **options: Any) -> None:
        target = f"{app.kv}/{quote(key, safe='/:')}"
        answer = await self.ask("PUT", target, self.owner, {"value": value, **options})
        assert answer.status == 204, answer.content


def bearer_headers(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@contextlib.asynccontextmanager
async def open_installation(folder: Path, clock: Any = None, **settings: str) -> AsyncIterator[Installation]:
    """`settings` are environment variables without their prefix, in lower case."""
    environment = {f"BAOBAB_{name.upper()}": value for name, value in settings.items()}
    # Nothing happens here but what is asked for: rounds of jobs would come when they come.
    environment.setdefault("BAOBAB_JOBS", "0")
    parts = {"clock": clock} if clock else {}
    server = Server(
        load_settings({**environment, **prepare_data(folder), "BAOBAB_BOOTSTRAP_KEY": KEY}, data=folder), **parts
    )
    async with server.open() as application:
        yield Installation(server, application)
