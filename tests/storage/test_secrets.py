"""Secrets at rest."""

import base64
import stat
import threading
from pathlib import Path

import pytest

from baobab.storage import secrets
from baobab.storage.rotation import rotate_key
from baobab.storage.secrets import SecretUnreadable, Vault, new_key


def test_what_is_sealed_opens_again() -> None:
    vault = Vault([new_key()])
    assert vault.open(vault.seal(b"s3cret", "apps.env:1"), "apps.env:1") == b"s3cret"


def test_the_same_secret_is_never_sealed_the_same_way() -> None:
    vault = Vault([new_key()])
    assert vault.seal(b"s3cret", "c") != vault.seal(b"s3cret", "c")


def test_a_secret_copied_to_another_place_does_not_open() -> None:
    vault = Vault([new_key()])
    with pytest.raises(SecretUnreadable):
        vault.open(vault.seal(b"s3cret", "apps.env:1"), "apps.env:2")


def test_a_secret_of_another_version_does_not_open() -> None:
    vault = Vault([new_key()])
    _, key, body = vault.seal(b"s3cret", "c").split(".")
    with pytest.raises(SecretUnreadable, match="version"):
        vault.open(f"v9.{key}.{body}", "c")


def test_every_altered_character_is_noticed() -> None:
    vault = Vault([new_key()])
    secret = vault.seal(b"s3cret", "c")
    version, key, body = secret.split(".")
    raw = base64.urlsafe_b64decode(body)
    for place in range(len(raw)):
        altered_bytes = bytearray(raw)
        altered_bytes[place] ^= 1
        with pytest.raises(SecretUnreadable):
            vault.open(f"{version}.{key}.{base64.urlsafe_b64encode(altered_bytes).decode()}", "c")


@pytest.mark.parametrize("text", ["", "v1", "v1.a.b", "v2.00000000.AAAA", "v1.00000000.!", "a.b.c.d"])
def test_what_is_no_envelope_is_refused(text: str) -> None:
    with pytest.raises(SecretUnreadable):
        Vault([new_key()]).open(text, "c")


def test_after_a_rotation_old_secrets_open_and_new_ones_have_the_new_key() -> None:
    old, new = new_key(), new_key()
    secret = Vault([old]).seal(b"s3cret", "c")
    vault = Vault([new, old])
    assert vault.open(secret, "c") == b"s3cret"
    assert not vault.is_current(secret)
    assert vault.is_current(vault.seal(b"s3cret", "c"))
    with pytest.raises(SecretUnreadable):
        Vault([new]).open(secret, "c")


def test_keys_for_other_uses_differ_by_purpose_and_from_the_root() -> None:
    key = new_key()
    vault = Vault([key])
    assert len({vault.derive("cursor"), vault.derive("refresh"), key}) == 3
    assert Vault([key]).derive("cursor") == vault.derive("cursor")


def test_the_key_file_is_for_its_owner_alone_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "data" / "secret.key"
    keys = secrets.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secrets.load_or_create(path) == keys


def test_starts_at_the_same_time_agree_on_one_key(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    loaded_keys: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: loaded_keys.append(secrets.load_or_create(path))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded_keys) == 16
    assert all(keys == loaded_keys[0] for keys in loaded_keys)
    assert [file.name for file in tmp_path.iterdir()] == ["secret.key"]


def test_a_rotated_file_holds_the_new_key_before_the_old(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    (old,) = secrets.load_or_create(path)
    rotate_key(path)
    first_key, kept_key = secrets.load_or_create(path)
    assert kept_key == old != first_key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "   ", "c2hvcnQ=", "not base64!"])
def test_a_key_text_that_holds_no_key_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        secrets.decode_keys(text)
