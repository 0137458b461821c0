"""What clients know of what they wrote, and whether it agrees with what is there."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp

ABSENT = object()


@dataclass
class Ledger:
    """An acknowledged write leaves one possible value; one that was refused or never answered leaves two."""

    possible: dict[str, list[Any]] = field(default_factory=dict)
    acknowledged_raises: int = 0
    """Acknowledged raises of the counter that all writers share."""
    requested_raises: int = 0
    """Raises that were asked for."""
    rules: set[str] = field(default_factory=set)
    """Acknowledged: rows, beside the keys."""
    wanted_rules: set[str] = field(default_factory=set)
    acknowledged_counts: Counter[str] = field(default_factory=Counter)
    """By the address of the server that answered."""
    refusal_counts: Counter[str] = field(default_factory=Counter)
    unanswered_counts: Counter[str] = field(default_factory=Counter)
    number: int = 0

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def record_possible(self, key: str, value: Any) -> None:
        self.possible.setdefault(key, [ABSENT]).append(value)

    def record_acknowledged(self, key: str, value: Any) -> None:
        self.possible[key] = [value]

    async def verify(self, session: aiohttp.ClientSession, address: str, app: str) -> None:
        """Hold what a server says against what its clients were told; what was open is settled from here on."""
        account = _Account(session, f"{address}/v1/{app}")
        found_values = await account.list_values()
        recount = sum(len(key) + len(_encode_compact(value)) for key, value in found_values.items())
        stats = await account.ask("GET", "/kv/_stats")
        assert (stats["keys_total"], stats["bytes_used"]) == (len(found_values), recount)
        for key, values in self.possible.items():
            assert found_values.get(key, ABSENT) in values, f"{key}: {found_values.get(key)} is none of {values}"
        strangers = {key for key in found_values if key.startswith("w")} - self.possible.keys()
        assert not strangers, f"nobody wrote {strangers}"
        counter = found_values.get("counter", 0)
        assert self.acknowledged_raises <= counter <= self.requested_raises, (
            f"{counter} is not within {self.acknowledged_raises} and {self.requested_raises}"
        )
        await self._verify_rules(account)
        self.possible = {key: [found_values.get(key, ABSENT)] for key in self.possible}
        self.acknowledged_raises = self.requested_raises = counter

    async def _verify_rules(self, account: "_Account") -> None:
        patterns = [rule["pattern"] for rule in (await account.ask("GET", "/kv/_expose"))["rules"]]
        rules = set(patterns)
        assert len(rules) == len(patterns), "a rule stands twice"
        assert self.rules <= rules <= self.wanted_rules
        # A row and its audit row are one transaction: both, or neither.
        audited_changes = await account.count_audited("kv_rule")
        assert audited_changes == {**dict.fromkeys(self.rules, 1), **dict.fromkeys(rules, 1)}
        self.rules = rules
        self.wanted_rules = set(rules)


class _Account:
    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        async with self._session.request(method, self._base + path, json=body) as answer:
            assert answer.status < 300, f"{method} {path}: {answer.status} {await answer.text()}"
            return await answer.json()

    async def list_values(self) -> dict[str, Any]:
        """Of the durable tier; what the other one holds is not promised."""
        values: dict[str, Any] = {}
        cursor: str | None = ""
        while cursor is not None:
            page = await self.ask("GET", "/kv/_scan?limit=100" + (f"&cursor={cursor}" if cursor else ""))
            keys, cursor = page["keys"], page["cursor"]
            ops = [{"op": "get", "key": key} for key in keys]
            results = (await self.ask("POST", "/kv/_batch", {"ops": ops}))["results"]
            values |= {key: result["value"] for key, result in zip(keys, results, strict=True)}
        return values

    async def count_audited(self, kind: str) -> Counter[str]:
        """How often the audit log tells of each resource of a kind."""
        audit_counts: Counter[str] = Counter()
        offset: int | None = 0
        while offset is not None:
            page = await self.ask("GET", f"/audit-logs?resource_type={kind}&limit=500&offset={offset}")
            audit_counts.update(row["resource_id"] for row in page["logs"] if row["success"])
            offset = page["nextOffset"]
        return audit_counts


def _encode_compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
