"""Reach: what one customer can call beside what the installation can, by keys and servers of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.patience import NO_BOUNDS, Patience
from baobab.runtime.gateway.probe import MAX_NAME, modality_of
from baobab.runtime.gateway.providers import Provider

Secret = Callable[[], str]
"""Opens a sealed key: what is held in memory is not the key itself."""


@dataclass(frozen=True)
class OwnServer:
    """A model server that a customer has declared; its models are `<name>/<model>`.

    listed: the names of its models as it last told them, with their context windows where it told those. patience: how
    long it may take to answer.
    """

    id: str
    name: str
    api_base: str
    secret: Secret | None = field(default=None, repr=False)
    listed: Mapping[str, int | None] = field(default_factory=dict)
    patience: Patience = NO_BOUNDS

    @property
    def provider_name(self) -> str:
        # Names of servers are each customer's; no vendor and no server of the operator's has a colon in its name.
        return f"server:{self.id}"

    @cached_property
    def models(self) -> Mapping[str, Model]:
        """Those that it listed, by id."""
        made = (self._model(name, window) for name, window in self.listed.items())
        return {model.id: model for model in made}

    def find(self, id_: str) -> Model | None:
        """The model of that id, listed or not: a list may be older than the model. None for what is no name."""
        return self.models.get(id_) or unlisted(self.name, id_, self.provider_name)

    def provider(self) -> Provider:
        key = self.secret() if self.secret is not None else ""
        return Provider(
            self.provider_name,
            self.api_base,
            key,
            "openai",
            lists=True,
            own=True,
            guarded=True,
            patience=self.patience,
        )

    def _model(self, name: str, context_window: int | None) -> Model:
        return _free(self.name, name, self.provider_name, context_window, frozenset(("local",)))


@dataclass(frozen=True, slots=True)
class Reach:
    """keys: the customer's, by the provider that each is for; the first of several that serve a model is used.

    servers: the customer's, by name.
    """

    keys: Mapping[str, Secret] = field(default_factory=dict)
    servers: Mapping[str, OwnServer] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.keys or self.servers)

    def before(self, other: "Reach") -> "Reach":
        """Both together; of two keys for one provider, this one's."""
        if not self:
            return other
        if not other:
            return self
        # This one's keys come first, and are not replaced.
        return Reach({**self.keys, **other.keys, **self.keys}, {**other.servers, **self.servers})


NOTHING = Reach()
UNLISTED = "unlisted"
"""The feature of a model that nobody has listed: there may be as many as somebody can write."""


def unlisted(vendor: str, id_: str, provider: str) -> Model | None:
    """A model that was only named, by an id that begins with `vendor`; None for what cannot be a name."""
    name = id_.removeprefix(f"{vendor}/")
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or " " in name:
        return None
    return _free(vendor, name, provider, None, frozenset((UNLISTED,)))


def _free(vendor: str, name: str, provider: str, context_window: int | None, features: frozenset[str]) -> Model:
    """What it costs is between the customer and whoever runs it."""
    modality: Any = modality_of(name)
    return Model(
        id=f"{vendor}/{name}",
        name=f"{vendor}: {name}",
        modality=modality,
        price=Price(0, 0),
        context_window=context_window,
        max_output=None,
        litellm=f"openai/{name}",
        provider=provider,
        features=features | {"streaming"} if modality == "chat" else features,
    )
