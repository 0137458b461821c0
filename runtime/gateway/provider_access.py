"""Reach: what one customer can call beside what the installation can, by keys and servers of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.probe import MAX_NAME, guess_modality
from baobab.runtime.gateway.providers import Provider
from baobab.runtime.gateway.retry_timeouts import NO_TIMEOUTS, RetryTimeouts

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
    listed_models: Mapping[str, int | None] = field(default_factory=dict)
    retry_timeouts: RetryTimeouts = NO_TIMEOUTS

    @property
    def provider_name(self) -> str:
        # Names of servers are each customer's; no vendor and no server of the operator's has a colon in its name.
        return f"server:{self.id}"

    @cached_property
    def models(self) -> Mapping[str, Model]:
        """Those that it listed, by id."""
        built = (self._build_model(name, window) for name, window in self.listed_models.items())
        return {model.id: model for model in built}

    def find_model(self, id_: str) -> Model | None:
        """The model of that id, listed or not: a list may be older than the model. None for what is no name."""
        return self.models.get(id_) or build_unlisted_model(self.name, id_, self.provider_name)

    def build_provider(self) -> Provider:
        key = self.secret() if self.secret is not None else ""
        return Provider(
            self.provider_name,
            self.api_base,
            key,
            "openai",
            lists_models=True,
            is_own=True,
            is_guarded=True,
            retry_timeouts=self.retry_timeouts,
        )

    def _build_model(self, name: str, context_window: int | None) -> Model:
        return _build_free_model(self.name, name, self.provider_name, context_window, frozenset(("local",)))


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """keys: the customer's, by the provider that each is for; the first of several that serve a model is used.

    servers: the customer's, by name.
    """

    keys: Mapping[str, Secret] = field(default_factory=dict)
    servers: Mapping[str, OwnServer] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.keys or self.servers)

    def merge(self, other: "ProviderAccess") -> "ProviderAccess":
        """Both together; of two keys for one provider, this one's."""
        if not self:
            return other
        if not other:
            return self
        # This one's keys come first, and are not replaced.
        return ProviderAccess({**self.keys, **other.keys, **self.keys}, {**other.servers, **self.servers})


NO_ACCESS = ProviderAccess()
UNLISTED = "unlisted"
"""The feature of a model that nobody has listed: there may be as many as somebody can write."""


def build_unlisted_model(vendor: str, id_: str, provider: str) -> Model | None:
    """A model that was only named, by an id that begins with `vendor`; None for what cannot be a name."""
    name = id_.removeprefix(f"{vendor}/")
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or " " in name:
        return None
    return _build_free_model(vendor, name, provider, None, frozenset((UNLISTED,)))


def _build_free_model(
    vendor: str, name: str, provider: str, context_window: int | None, features: frozenset[str]
) -> Model:
    """What it costs is between the customer and whoever runs it."""
    modality: Any = guess_modality(name)
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
