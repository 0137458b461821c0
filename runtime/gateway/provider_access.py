"""The keys and servers of one customer, with which it can call more models than the installation offers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.probe import MAX_NAME, guess_modality
from baobab.runtime.gateway.providers import Provider
from baobab.runtime.gateway.retry_timeouts import NO_TIMEOUTS, RetryTimeouts

Secret = Callable[[], str]
"""Opens a sealed key, so that the key itself is not kept in memory."""


@dataclass(frozen=True)
class OwnServer:
    """A model server that a customer has declared; its models are `<name>/<model>`.

    listed_models: the names of its models in its last list, with their context windows if it lists them.
    retry_timeouts: how long it may take to answer.
    """

    id: str
    name: str
    api_base: str
    secret: Secret | None = field(default=None, repr=False)
    listed_models: Mapping[str, int | None] = field(default_factory=dict)
    retry_timeouts: RetryTimeouts = NO_TIMEOUTS

    @property
    def provider_name(self) -> str:
        # Customers may use the same server names, so the id is used. No other provider's name has a colon.
        return f"server:{self.id}"

    @cached_property
    def models(self) -> Mapping[str, Model]:
        """The models in its last list, by id."""
        built_models = (self._build_model(name, window) for name, window in self.listed_models.items())
        return {model.id: model for model in built_models}

    def find_model(self, id_: str) -> Model | None:
        """Returns the model of that id, listed or not, because the list may be older. None if it cannot be a name."""
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
    """A customer's own keys and servers.

    keys: by provider; if several providers serve a model, the first is used. servers: by name.
    """

    keys: Mapping[str, Secret] = field(default_factory=dict)
    servers: Mapping[str, OwnServer] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.keys or self.servers)

    def merge(self, other: "ProviderAccess") -> "ProviderAccess":
        """Returns both together; of two keys for one provider, this object's is kept."""
        if not self:
            return other
        if not other:
            return self
        # This object's keys come first and are not replaced.
        return ProviderAccess({**self.keys, **other.keys, **self.keys}, {**other.servers, **self.servers})


NO_ACCESS = ProviderAccess()
UNLISTED = "unlisted"
"""The feature of a model that is in no list: callers can name any number of such models."""


def build_unlisted_model(vendor: str, id_: str, provider: str) -> Model | None:
    """Builds a model that is in no list, from an id that begins with `vendor`; None if it cannot be a name."""
    name = id_.removeprefix(f"{vendor}/")
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or " " in name:
        return None
    return _build_free_model(vendor, name, provider, None, frozenset((UNLISTED,)))


def _build_free_model(
    vendor: str, name: str, provider: str, context_window: int | None, features: frozenset[str]
) -> Model:
    """Builds a model that costs nothing here, because the customer pays its provider directly."""
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
