"""Users come from another system with the passwords that they have there."""

import base64
import hashlib
from typing import Any

import bcrypt
import pytest
from argon2 import PasswordHasher
from argon2.low_level import Type
from sqlalchemy import select

from baobab.runtime import passwords
from baobab.tools.core.errors import BadRequest
from baobab.tools.users.errors import WrongCredentials
from baobab.tools.users.tables import users
from tests.tools.users.conftest import EMAIL, PASSWORD, UsersHarness

LONG = "An9?" + "x" * 100


def encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode().rstrip("=")


def hash_with_scrypt(password: str, cost_log2: int = 10) -> str:
    salt = b"sixteen bytes 16"
    digest = hashlib.scrypt(password.encode(), salt=salt, n=1 << cost_log2, r=8, p=1, dklen=32)
    return f"$scrypt$ln={cost_log2},r=8,p=1${encode(salt)}${encode(digest)}"


def hash_with_bcrypt(password: str) -> str:
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()


HASHES = {
    "bcrypt": hash_with_bcrypt(PASSWORD),
    "bcrypt of PHP": hash_with_bcrypt(PASSWORD).replace("$2b$", "$2y$"),
    "scrypt": hash_with_scrypt(PASSWORD),
    "argon2id": PasswordHasher(time_cost=1, memory_cost=1024, parallelism=2).hash(PASSWORD),
    "argon2i": PasswordHasher(time_cost=2, memory_cost=1024, parallelism=1, type=Type.I).hash(PASSWORD),
}


REFUSED = {
    "bcrypt of cost 31": "$2b$31$" + "a" * 53,
    "short bcrypt": "$2b$12$short",
    "bcrypt of no kind": "$2x$12$" + "a" * 53,
    "scrypt of 2^30": hash_with_scrypt(PASSWORD).replace("ln=10", "ln=30"),
    "scrypt of 99 lanes": hash_with_scrypt(PASSWORD).replace("p=1", "p=99").replace("ln=10", "ln=17"),
    "scrypt of nothing": hash_with_scrypt(PASSWORD).replace("ln=10", "ln=0"),
    "scrypt of no block": "$scrypt$ln=10,r=0,p=1$c2FsdA$" + encode(b"d" * 32),
    "argon2 of 4 GiB": HASHES["argon2id"].replace("m=1024", "m=4194304"),
    "argon2 of a million passes": HASHES["argon2id"].replace("t=1", "t=1000000"),
    "argon2 of nonsense": "$argon2id$v=19$nonsense",
    "md5": "5f4dcc3b5aa765d61d8327deb882cf99",
    "plain text": PASSWORD,
}


async def read_hash(people: UsersHarness) -> str:
    async with people.tools.services.database.reading() as connection:
        password_hash: str = (
            await connection.execute(select(users.c.password_hash).where(users.c.email == EMAIL))
        ).scalar_one()
        return password_hash


async def import_users(people: UsersHarness, *new_users: dict[str, Any]) -> Any:
    return await people.call("users_import", people.owner, users=list(new_users))


@pytest.mark.parametrize("name", HASHES)
async def test_a_user_logs_in_with_the_password_of_elsewhere_and_it_is_hashed_anew(
    people: UsersHarness, name: str
) -> None:
    old_hash = HASHES[name]
    result = await import_users(
        people, {"email": EMAIL, "email_verified": True, "password_hash": old_hash, "role": "vip"}
    )
    assert (result["created"], result["results"][0]["status"]) == (1, "created")
    with pytest.raises(WrongCredentials):
        await people.log_in(password="wrong Horse 7!")
    assert await read_hash(people) == old_hash
    tokens = await people.log_in()
    assert (tokens["user"]["id"], tokens["user"]["email_verified"]) == (result["results"][0]["user_id"], True)
    assert (await people.authenticate(tokens)).role == "vip"
    new_hash = await read_hash(people)
    assert new_hash != old_hash
    assert not passwords.is_outdated(new_hash)
    await people.log_in()
    assert await read_hash(people) == new_hash


async def test_bcrypt_looks_at_the_first_72_bytes_as_it_did_elsewhere(people: UsersHarness) -> None:
    await import_users(people, {"email": EMAIL, "password_hash": hash_with_bcrypt(LONG)})
    await people.log_in(password=LONG)
    # From then on the whole password counts.
    with pytest.raises(WrongCredentials):
        await people.log_in(password=LONG[:80])


async def test_an_import_that_is_sent_again_changes_nothing_and_says_so(people: UsersHarness) -> None:
    await people.sign_up()
    new = [{"email": f"user{number}@example.com", "display_name": f"User {number}"} for number in range(450)]
    first = await import_users(people, {"email": EMAIL.upper(), "role": "admin"}, *new, new[0])
    assert (first["created"], first["exist"], first["invalid"]) == (450, 2, 0)
    assert [line["status"] for line in first["results"]] == ["exists", *["created"] * 450, "exists"]
    again = await import_users(people, *new)
    assert (again["created"], again["exist"]) == (0, 450)
    assert (await people.authenticate(await people.log_in())).role == "user"
    assert not await people.list_mails(new[0]["email"])


@pytest.mark.parametrize("name", REFUSED)
async def test_a_hash_that_wants_too_much_work_or_is_none_is_left_out_and_the_others_come(
    people: UsersHarness, name: str
) -> None:
    refused_hash = REFUSED[name]
    result = await import_users(people, {"email": EMAIL, "password_hash": refused_hash}, {"email": "ben@example.com"})
    assert [line["status"] for line in result["results"]] == ["invalid", "created"]
    assert "`password_hash`" in result["results"][0]["reason"]
    assert refused_hash not in str(result)


async def test_a_list_with_a_malformed_line_is_refused_as_a_whole(people: UsersHarness) -> None:
    with pytest.raises(BadRequest):
        await import_users(people, {"email": "ben@example.com"}, {"email": "nobody"})
    result = await people.call("users_list", people.owner)
    assert result["users"] == []
