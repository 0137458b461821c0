"""Secrets: what was minted is kept as a digest or sealed, and never told."""

import io
import json
import logging
from pathlib import Path
from typing import Any

from sqlalchemy import text

from baobab.logs import JsonLines
from baobab.storage.sql.tables import metadata
from tests.conftest import Baobab

USER = "11111111-1111-4111-8111-111111111111"


async def test_no_secret_stands_in_any_table_file_or_log_line(baobab: Baobab, tmp_path: Path) -> None:
    """Mints one secret of each kind, then looks for their texts in everything that was written."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("", "baobab", "baobab.access")}
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        secrets = await _create_secrets(baobab)
        await baobab.application.services.audit_log.flush()
    finally:
        root.removeHandler(handler)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    written_text = stream.getvalue()
    for line in written_text.splitlines():
        json.loads(line)
    async with baobab.application.services.database.reading() as connection:
        for table in metadata.sorted_tables:
            written_text += repr((await connection.execute(text(f'SELECT * FROM "{table.name}"'))).all())  # noqa: S608
    files = (file for file in tmp_path.rglob("*") if file.is_file() and file.name != "secret.key")
    on_disk = b"".join(file.read_bytes() for file in files)
    for kind, secret in secrets.items():
        assert secret not in written_text, kind
        assert secret.encode() not in on_disk, kind


async def _create_secrets(baobab: Baobab) -> Any:
    client, owner, app = baobab.client, baobab.owner, await baobab.create_app()

    async def create_key(**fields: Any) -> Any:
        return (await client.post("/api-keys", json={"name": "k", **fields}, headers=owner)).json()["key"]

    secrets = {
        "bootstrap key": baobab.key,
        "account key": await create_key(),
        "app key": await create_key(key_scope="app", target_app_id=app),
        "gateway key": await create_key(scopes=["ai:gateway"]),
        "substrate key": await create_key(scopes=["substrate"]),
        "function key": (await client.post(f"/v1/{app}/kv/_rotate_key", headers=owner)).json()["function_key"],
        "user token": (await baobab.user_headers(app, USER))["authorization"].removeprefix("Bearer "),
        "password": "correct Horse 7!",
    }
    ada = {"email": "ada@example.com", "password": secrets["password"]}
    assert (await client.post("/platform/signup", json={**ada, "name": "Ada"})).status_code == 201
    session = (await client.post("/platform/login", json=ada)).json()
    secrets |= {"platform token": session["token"], "refresh token": session["refresh_token"]}
    response = await client.post("/platform/refresh", json={"refresh_token": session["refresh_token"]})
    secrets["second refresh token"] = response.json()["refresh_token"]
    token = {"authorization": f"Bearer {session['token']}"}
    home = (await client.get("/platform/me", headers=token)).json()["organizations"][0]["id"]
    invited_response = await client.post(
        f"/v1/organizations/{home}/invitations", json={"email": "b@example.com"}, headers=token
    )
    secrets["invitation"] = invited_response.json()["token"]
    for secret in (secrets["app key"], secrets["user token"], secrets["function key"], secrets["platform token"]):
        await client.get(f"/v1/{app}/kv/none", headers={"authorization": f"Bearer {secret}"})
    # What goes wrong with a secret in hand is where it would be told.
    await client.post("/platform/login", json={**ada, "password": secrets["password"] + "x"})
    await client.post("/platform/login", json={**ada, "unknown": secrets["password"]})
    await client.post("/platform/refresh", json={"refresh_token": secrets["refresh token"] + "x"})
    await client.post("/init", json={"name": secrets["account key"]}, headers=owner)
    return secrets
