"""Sign-in as usually written with FastAPI: argon2-cffi, joserfc and SQLite; one key, and sessions in rows."""

import secrets
import sqlite3
import sys
import threading
import time
from typing import Annotated, Any

import uvicorn
from argon2 import PasswordHasher
from argon2.exceptions import VerificationError
from fastapi import FastAPI, Header, HTTPException
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey
from pydantic import BaseModel

_HOUR, _WEEK = 3600, 604_800
app, hasher, key = FastAPI(), PasswordHasher(), RSAKey.generate_key(2048)
lock = threading.Lock()
database = sqlite3.connect(sys.argv[1], check_same_thread=False, isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
database.execute("PRAGMA synchronous = FULL")
database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT UNIQUE, password_hash TEXT)")
database.execute("CREATE TABLE sessions (token TEXT PRIMARY KEY, user_id INTEGER, ends REAL)")


class Credentials(BaseModel):
    email: str
    password: str


class Refresh(BaseModel):
    refresh_token: str


def ask(statement: str, *values: Any) -> Any:
    with lock:
        return database.execute(statement, values).fetchone()


def build_tokens(user_id: int) -> dict[str, Any]:
    refresh = secrets.token_urlsafe(32)
    ask("INSERT INTO sessions VALUES (?, ?, ?)", refresh, user_id, time.time() + _WEEK)
    claims = {"sub": str(user_id), "iat": int(time.time()), "exp": int(time.time()) + _HOUR}
    return {"access_token": jwt.encode({"alg": "RS256"}, claims, key), "refresh_token": refresh, "expires_in": _HOUR}


@app.post("/signup")
def sign_up(body: Credentials) -> dict[str, str]:
    ask("INSERT INTO users (email, password_hash) VALUES (?, ?)", body.email, hasher.hash(body.password))
    return {"email": body.email}


@app.post("/login")
def log_in(body: Credentials) -> dict[str, Any]:
    row = ask("SELECT id, password_hash FROM users WHERE email = ?", body.email)
    try:
        hasher.verify(row[1] if row else "", body.password)
    except VerificationError as exc:
        raise HTTPException(401) from exc
    return build_tokens(row[0])


@app.post("/refresh")
def refresh(body: Refresh) -> dict[str, Any]:
    row = ask("DELETE FROM sessions WHERE token = ? AND ends > ? RETURNING user_id", body.refresh_token, time.time())
    if row is None:
        raise HTTPException(401)
    return build_tokens(row[0])


@app.get("/me")
def me(authorization: Annotated[str, Header()]) -> dict[str, Any]:
    try:
        claims = jwt.decode(authorization.removeprefix("Bearer "), key, algorithms=["RS256"]).claims
    except (JoseError, ValueError) as exc:
        raise HTTPException(401) from exc
    row = ask("SELECT id, email FROM users WHERE id = ?", int(claims["sub"]))
    if claims["exp"] <= time.time() or row is None:
        raise HTTPException(401)
    return {"id": row[0], "email": row[1]}


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
