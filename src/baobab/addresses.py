"""Types for the addresses of stores in settings. A malformed address is refused when the settings are read."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints, ValidationInfo

_VALKEY_URL = "must be redis://USER:PASSWORD@HOST:PORT/NUMBER, or rediss:// with TLS"
_DATABASE_URL = "must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME"
_NOTICES_URL = "must be postgresql://USER:PASSWORD@HOST:PORT/NAME"
_OBJECTS_URL = "must be file:///FOLDER or s3://BUCKET/PREFIX"


def _check_database_url(value: str) -> str:
    return _with_scheme(_use_known_spelling(value), ("sqlite:///", "postgresql://"), _DATABASE_URL)


def _check_notices_url(value: str) -> str:
    return _with_scheme(_use_known_spelling(value), ("postgresql://",), _NOTICES_URL)


def _use_known_spelling(value: str) -> str:
    """Returns the address with `postgresql`, which drivers know, instead of the older `postgres`."""
    return value.replace("postgres://", "postgresql://", 1) if value.startswith("postgres://") else value


def _check_valkey_url(value: str) -> str:
    return _with_scheme(value, ("redis://", "rediss://", "unix://"), _VALKEY_URL)


def _check_objects_url(value: str) -> str:
    return _with_scheme(value, ("file:///", "s3://"), _OBJECTS_URL)


def _require_valkey(value: str, info: ValidationInfo) -> str:
    """Refuses the place `valkey` for the key-value store where no Valkey is named."""
    if value == "valkey" and not info.data.get("valkey_url", "unknown"):
        raise ValueError("valkey needs the address of one, a valkey_url")
    return value


def _with_scheme(value: str, schemes: tuple[str, ...], otherwise: str) -> str:
    try:
        _ = urlsplit(value).port
    except ValueError as exc:
        raise ValueError(otherwise) from exc
    if value and not value.startswith(schemes):
        raise ValueError(otherwise)
    return value


DatabaseUrl = Annotated[str, AfterValidator(_check_database_url)]
NoticesUrl = Annotated[str, AfterValidator(_check_notices_url)]
ValkeyUrl = Annotated[str, AfterValidator(_check_valkey_url)]
ObjectsUrl = Annotated[str, AfterValidator(_check_objects_url)]
KvPlace = Annotated[Literal["database", "valkey"], AfterValidator(_require_valkey)]
RegionName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
