"""The matrix of clients: which there are, at which versions, and what each must show."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
LOCKS = FOLDER / "python" / "locks"
NODE_FOLDERS = {"light": FOLDER / "node", "heavy": FOLDER / "node_heavy"}


Interface = Literal["models", "mcp", "tables"]


@dataclass(frozen=True)
class Check:
    name: str
    interface: Interface
    description: str
    expected_texts: tuple[str, ...]
    """What must be in what the client saw, once white space is taken out."""

    def accepts(self, saw: str) -> bool:
        # Some clients quote JSON within JSON; that is a matter of theirs.
        compact = "".join(saw.split()).replace("\\", "")
        return all("".join(text.split()) in compact for text in self.expected_texts)


CHECKS = {
    check.name: check
    for check in (
        Check("chat", "models", "asks a model and gets its answer", ("Hello from a client.",)),
        Check("stream", "models", "reads an answer piece by piece", ("Hello from a client.",)),
        Check("tools", "models", "runs its own tool when the model calls it", ("Rain in Oslo.",)),
        Check("structured", "models", "gets an answer that fits its schema", ('"city":"Oslo"', '"degrees":7')),
        Check("turns", "models", "continues a conversation", ("One.", "Two.")),
        Check(
            "refused",
            "models",
            "shows why the provider refuses a request",
            ("400", "The model's provider refused the request", "only the default is taken"),
        ),
        Check("param", "models", "shows which field of the request is at fault", ("the field is temperature.",)),
        Check("embeddings", "models", "gets embeddings", ("384 numbers",)),
        Check("connect", "mcp", "connects and lists the tools", ("kv_get", "search_tools")),
        Check("value", "mcp", "shows a model the value that a tool returns", ("hello, client",)),
        Check("search", "mcp", "shows a model what `search_tools` finds", ("kv_setnx",)),
        Check("refusal", "mcp", "shows a model why a call is refused and what to do", ("not_found", "Put a value")),
        Check(
            "approval",
            "mcp",
            "shows a model that a person must approve, and the result after that",
            ("APPROVAL_REQUIRED", "/approvals/", "Done."),
        ),
        Check(
            "rows",
            "tables",
            "filters, counts and pages rows",
            (
                '["Say"hello""],["AWizard,ofEarthsea","Kindred"],["TheDispossessed","Kindred"]',
                '["AWizard,ofEarthsea"],["TheDispossessed"],["TheDispossessed","AWizard,ofEarthsea"]',
                '["AWizard,ofEarthsea"],["TheDispossessed"],[4,2,3],[2]',
            ),
        ),
        Check(
            "related",
            "tables",
            "reads rows with those that they refer to, and those that refer to them",
            (
                '{"title":"Kindred","authors":{"name":"Octavia"}}',
                '[{"name":"Octavia","books":[{"title":"Kindred"}]}]',
                '[{"books":[{"title":"A Wizard, of Earthsea"}]}]',
            ),
        ),
        Check(
            "writes",
            "tables",
            "upserts, updates and deletes rows",
            ('[[{"id":1,"name":"Ursula"}],[],{"price":20},1]',),
        ),
        Check("one", "tables", "reads exactly one row, or none", ('[null,{"name":"Octavia"},"PGRST116"]',)),
        Check(
            "csv",
            "tables",
            "reads rows as CSV",
            ("id,title,tags", '1,The Dispossessed,"[""utopia"",""moon""]"', '2,"A Wizard, of Earthsea"'),
        ),
        Check(
            "rejected",
            "tables",
            "shows why a row is refused, and what to do",
            (
                "409",
                '"code":"23505"',
                "has a row with this value of `name`",
                '"hint":"Choose another value',
                '"VALIDATION_TABLE_NOT_FOUND","The app has no table `nothing`.',
            ),
        ),
    )
}

PROVIDER_MODELS = {"openai": "openai/gpt-4o-mini", "anthropic": "anthropic/claude-haiku-4.5"}
"""A model of a provider that speaks each wire; a fake provider answers for both."""


@dataclass(frozen=True)
class Client:
    name: str
    title: str
    language: Literal["python", "node"]
    weight: Literal["light", "heavy"]
    packages: Mapping[str, str]
    """Package and exact version; the first is the client itself."""
    shows: tuple[str, ...]
    lines: str
    """What a person pastes to connect it; if empty, the marked lines of its script."""
    faults: Mapping[str, str]
    """Check that this client does not pass by a fault of its own, and which fault it is."""
    note: str = ""
    wire: Literal["openai", "anthropic"] | None = None
    """The wire it speaks, if it is also run on models of providers."""
    provider_shows: tuple[str, ...] = ()
    """The checks that are made on these."""
    extras: tuple[str, ...] = ()
    """Of the client itself."""

    @property
    def requirements(self) -> list[str]:
        """The packages to install, in the form that pip takes."""
        client, *others = (f"{package}=={version}" for package, version in self.packages.items())
        return [client.replace("==", f"[{','.join(self.extras)}]==") if self.extras else client, *others]

    @property
    def models(self) -> dict[str, str]:
        """The models it is run on, by what the server does with its requests."""
        provider_models = {
            "relayed" if wire == self.wire else "translated": model for wire, model in PROVIDER_MODELS.items()
        }
        return {"built-in": "baobab/echo"} | (provider_models if self.wire else {})

    def checks_on(self, model: str) -> tuple[str, ...]:
        """The checks made on a model, named as in `models`."""
        return self.shows if model == "built-in" else self.provider_shows

    @property
    def version(self) -> str:
        return next(iter(self.packages.values()))

    @property
    def script(self) -> Path:
        if self.language == "python":
            return FOLDER / "python" / f"{self.name.replace('-', '_')}_client.py"
        return NODE_FOLDERS[self.weight] / f"{self.name}.mjs"

    @property
    def lock(self) -> Path:
        return LOCKS / f"{self.name}.txt"


def load_clients() -> list[Client]:
    """Reads the declared clients, in the order of the page."""
    entries = tomllib.loads((FOLDER / "clients.toml").read_text())["client"]
    return [
        Client(
            **{
                "faults": {},
                **fields,
                "shows": tuple(fields["shows"]),
                "extras": tuple(fields.get("extras", ())),
                "provider_shows": tuple(fields.get("provider_shows", ())),
                "lines": fields.get("lines", "").strip(),
            }
        )
        for fields in entries
    ]


def load_left_out() -> Mapping[str, str]:
    """Reads the clients that are not run, with the reason."""
    left_out: Mapping[str, str] = tomllib.loads((FOLDER / "clients.toml").read_text())["left_out"]
    return left_out


def load_results() -> dict[str, Any]:
    """Reads what was last found: each client's version, date and checks."""
    results: dict[str, Any] = json.loads(RESULTS.read_text())
    return results
