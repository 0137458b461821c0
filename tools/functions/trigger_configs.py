"""The triggers of a function: what may be set, and the form in which they are stored."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from baobab.runtime.jobs.cron import Cron, CronInvalid
from baobab.tools.functions.errors import FunctionInvalid

BUCKET = "default"
"""The only bucket of an app."""
SIGNATURE_HEADER = "x-signature"
OWN_SIGNATURE_HEADER = "x-bb-signature"
TOLERANCE_SECONDS = 300
PROVIDERS = ("stripe", "github", "custom")

_FIELDS = {
    "http": {"method", "path", "auth"},
    "cron": {"schedule", "timezone", "catch_up"},
    "storage_upload": {"bucket", "prefix", "contentTypes"},
    "webhook": {
        "provider",
        "secret",
        "signature_header",
        "tolerance_seconds",
        "idempotency_key_header",
        "secret_required",
        "allowed_sources",
    },
    "websocket": set[str](),
}
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CONTENT_TYPE = re.compile(r"[\w.+-]+/(\*|[\w.+-]+)|\*/\*")


@dataclass(frozen=True, slots=True)
class TriggerPlan:
    """The triggers of a deployment. secret: of its webhook, as it was sent; None if none was.

    needs_secret: whether its webhooks must be signed.
    """

    triggers: list[dict[str, Any]]
    secret: str | None
    needs_secret: bool


def read_triggers(given: Sequence[Mapping[str, Any]]) -> TriggerPlan:
    """Returns the triggers of a deployment in the form in which they are stored. Raises FunctionInvalid."""
    triggers: list[dict[str, Any]] = []
    secret: str | None = None
    needs_secret = False
    for each in given:
        kind, config = each["type"], {k: v for k, v in each.get("config", {}).items() if v is not None}
        if any(trigger["type"] == kind for trigger in triggers):
            raise FunctionInvalid(f"There are two triggers of the type `{kind}`; a function has at most one of each.")
        if foreign := sorted(config.keys() - _FIELDS[kind]):
            raise FunctionInvalid(f"A trigger of the type `{kind}` has no `{foreign[0]}`.")
        secret = config.pop("secret", secret)
        config = _READERS[kind](config)
        if kind == "webhook":
            needs_secret = config["provider"] is not None or config["secret_required"]
            if secret is not None and not needs_secret:
                raise FunctionInvalid("`secret` belongs to a webhook that is signed: say `provider` too.")
        triggers.append({"type": kind, "config": config, "enabled": each.get("enabled", True)})
    return TriggerPlan(triggers, secret, needs_secret)


def find_trigger(triggers: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    """Returns the config of a function's trigger of a type; None if it has none that is enabled."""
    for trigger in triggers:
        if trigger["type"] == kind and trigger["enabled"]:
            config: Mapping[str, Any] = trigger["config"]
            return config
    return None


def _read_http(config: dict[str, Any]) -> dict[str, Any]:
    path = config.get("path", "")
    if path and not path.startswith("/"):
        raise FunctionInvalid("`path` of an http trigger begins with `/`.")
    return {"method": config.get("method"), "path": path.rstrip("/"), "auth": config.get("auth", "required")}


def _read_cron(config: dict[str, Any]) -> dict[str, Any]:
    if "schedule" not in config:
        raise FunctionInvalid("A cron trigger needs `schedule`, such as `0 2 * * *`.")
    zone = config.get("timezone", "UTC")
    try:
        schedule = Cron(config["schedule"], None if zone == "UTC" else ZoneInfo(zone))
        schedule.find_next(datetime(2027, 1, 1, tzinfo=UTC))
    except (ZoneInfoNotFoundError, OSError) as exc:
        raise FunctionInvalid(f"`timezone` {zone[:60]!r} is no time zone such as Europe/Prague.") from exc
    except CronInvalid as exc:
        raise FunctionInvalid(f"`schedule` is not valid: {exc}.") from exc
    except ValueError as exc:
        raise FunctionInvalid(f"`timezone` {zone[:60]!r} is no time zone such as Europe/Prague.") from exc
    return {"schedule": config["schedule"], "timezone": zone, "catch_up": config.get("catch_up", False)}


def _read_upload(config: dict[str, Any]) -> dict[str, Any]:
    bucket = config.get("bucket", BUCKET)
    if bucket != BUCKET:
        raise FunctionInvalid(f"An app has one bucket, `{BUCKET}`.")
    types = [each.lower() for each in config.get("contentTypes", [])]
    for each in types:
        if not _CONTENT_TYPE.fullmatch(each):
            raise FunctionInvalid(f"`contentTypes` has {each[:60]!r}, which is no type such as image/png or image/*.")
    return {"bucket": bucket, "prefix": config.get("prefix", ""), "contentTypes": types}


def _read_webhook(config: dict[str, Any]) -> dict[str, Any]:
    provider = config.get("provider")
    sources = [each.strip().lower() for each in config.get("allowed_sources", "").split(",") if each.strip()]
    if unknown := sorted(set(sources) - set(PROVIDERS)):
        raise FunctionInvalid(f"`allowed_sources` has `{unknown[0][:60]}`; there are {', '.join(PROVIDERS)}.")
    if len(sources) > 1 or (sources and provider not in (None, sources[0])):
        raise FunctionInvalid("A webhook trigger verifies one provider; deploy a function for each.")
    provider = provider or (sources[0] if sources else None)
    headers = {
        "signature_header": config.get("signature_header", SIGNATURE_HEADER),
        "idempotency_key_header": config.get("idempotency_key_header"),
    }
    for field, header in headers.items():
        if header is not None and not _HEADER.fullmatch(header):
            raise FunctionInvalid(f"`{field}` is no name of a header.")
    return {
        "provider": provider,
        **{name: None if header is None else header.lower() for name, header in headers.items()},
        "tolerance_seconds": config.get("tolerance_seconds", TOLERANCE_SECONDS),
        "secret_required": config.get("secret_required", True),
    }


def _read_websocket(config: dict[str, Any]) -> dict[str, Any]:
    return config


_READERS = {
    "http": _read_http,
    "cron": _read_cron,
    "storage_upload": _read_upload,
    "webhook": _read_webhook,
    "websocket": _read_websocket,
}
