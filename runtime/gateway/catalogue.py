"""The models that can be called: those of LiteLLM's price map, and those that the operator's servers offer.

LiteLLM itself is not imported: that costs seconds, and the map is a JSON file in its package.

    catalogue = Catalogue(clock, providers={"openai", "groq"})
    model = catalogue.find_model("openai/gpt-4o-mini") or catalogue.find_model("gpt-4o-mini")
    price = catalogue.get_price(model, prompt_tokens=1200).marked_up(20)
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from baobab.runtime.gateway.model import Modality, Model, Price
from baobab.runtime.gateway.naming import build_model_ref
from baobab.runtime.gateway.pricing import MediaRates, Tier, parse_price, parse_rates, parse_tiers
from baobab.storage.clock import Clock

# Numbers with a fraction are kept as texts, exactly as in the file.
PriceMap = Mapping[str, Mapping[str, Any]]

OWN_KEY_MODALITIES: frozenset[Modality] = frozenset(["chat", "embedding"])
"""The modalities that customers can call with their own keys; images and videos need the installation's."""

_DAY = 86_400
_FILE = "model_prices_and_context_window_backup.json"
_MODALITIES: dict[str, Modality] = {
    "chat": "chat",
    "responses": "chat",
    "embedding": "embedding",
    "image_generation": "image",
    "video_generation": "video",
}
_FEATURES = {
    "supports_function_calling": "tools",
    "supports_parallel_function_calling": "parallel_tools",
    "supports_vision": "vision",
    "supports_pdf_input": "pdf",
    "supports_video_input": "video_input",
    "supports_response_schema": "json_schema",
    "supports_reasoning": "reasoning",
    "supports_prompt_caching": "prompt_caching",
}


def load_price_map() -> PriceMap:
    """Reads the price map of the installed LiteLLM. Raises FileNotFoundError if the package or its file is missing."""
    package = find_spec("litellm")
    if package is None or package.origin is None:
        raise FileNotFoundError("litellm is not installed")
    # Texts, because a float would change the price: 1.5e-07 has no exact binary form.
    text = (Path(package.origin).parent / _FILE).read_bytes()
    price_map: PriceMap = json.loads(text, parse_float=str)
    return price_map


@dataclass(frozen=True, slots=True)
class _Listing:
    model: Model
    key: str  # its name in the price map
    rank: tuple[int, int]
    retirement_date: date | None
    tiers: tuple[Tier, ...]
    rates: MediaRates | None = None

    def is_sold(self, today: date) -> bool:
        return self.retirement_date is None or today <= self.retirement_date


class _CatalogueIndex:
    """All models that are available on one day. aliases: other names of ids, the vendors' before the servers'."""

    def __init__(self, today: date, listings: Iterable[_Listing], offered_listings: Sequence[_Listing]) -> None:
        self.listings: dict[str, list[_Listing]] = {}
        sold_listings = (listing for listing in listings if listing.is_sold(today))
        priced_listings = sorted(sold_listings, key=lambda listing: (listing.rank, listing.key))
        # Separate, so that a server's names neither replace a vendor's nor make them ambiguous.
        self.aliases = (_build_aliases(priced_listings), _build_aliases(offered_listings))
        for listing in (*priced_listings, *offered_listings):
            self.listings.setdefault(listing.model.id, []).append(listing)
        self.vendors = frozenset(id_.partition("/")[0] for id_ in self.listings)
        self.all_models: tuple[Model, ...] | None = None


class Catalogue:
    """Finds models by id. The first look-up of a process reads the price map, which takes about 100 ms of processor
    time.

    providers: the names of the providers that can be called; only their models are listed. None lists all models.
    source: returns the price map, if it is another than LiteLLM's. The look-ups' `further` names more providers, whose
    text models a customer can call with keys of its own. A model disappears on the day after its deprecation date, in
    UTC.
    """

    def __init__(
        self,
        clock: Clock,
        providers: Collection[str] | None = None,
        source: Callable[[], PriceMap] | None = None,
    ) -> None:
        self._clock = clock
        self._providers = None if providers is None else frozenset(providers)
        self._source = source
        self._offers: dict[str, list[_Listing]] = {}
        self._cached_index: _CatalogueIndex | None = None
        self._cached_day = 0

    def register_models(self, provider: str, models: Iterable[Model]) -> None:
        """Sets the models of a provider that is not in the price map, replacing those that it offered before."""
        self._offers[provider] = [_Listing(model, model.id, (0, 0), None, ()) for model in models]
        self._cached_index = None

    def list_models(self, modality: Modality | None = None, further: Collection[str] = ()) -> tuple[Model, ...]:
        """Returns all models that can be called, each once, sorted by id."""
        index = self._get_index()
        if further:
            models = self._list_callable(index, further)
        else:
            models = index.all_models = index.all_models or self._list_callable(index, ())
        return models if modality is None else tuple(model for model in models if model.modality == modality)

    def find_model(self, name: str, further: Collection[str] = ()) -> Model | None:
        """Returns the model of that id, or the only one that LiteLLM or its vendor calls so, such as `gpt-4o-mini`."""
        listings = self._find_listings(name, further)
        return listings[0].model if listings else None

    def list_deployments(self, name: str, further: Collection[str] = ()) -> tuple[Model, ...]:
        """Returns the model of `find_model` as each provider sells it, at its own price; the preferred one first."""
        return tuple(listing.model for listing in self._find_listings(name, further))

    @property
    def vendors(self) -> frozenset[str]:
        """The vendors of all models: the first parts of their ids."""
        return self._get_index().vendors

    def get_price(self, model: Model, prompt_tokens: int) -> Price:
        """Returns the price of one call: for a long prompt, vendors charge more for all tokens of the call."""
        for listing in self._get_index().listings.get(model.id, ()):
            if listing.model == model:
                return next((tier.price for tier in reversed(listing.tiers) if prompt_tokens > tier.above), model.price)
        return model.price

    def _list_callable(self, index: _CatalogueIndex, further: Collection[str]) -> tuple[Model, ...]:
        callable_listings = (self._filter_callable(index.listings[id_], further) for id_ in sorted(index.listings))
        return tuple(listings[0].model for listings in callable_listings if listings)

    def get_rates(self, model: Model) -> MediaRates | None:
        """Returns what an image or video model of the price map costs beyond its price; None for all others."""
        listings = self._get_index().listings.get(model.id, ())
        return next((listing.rates for listing in listings if listing.model == model), None)

    def _find_listings(self, name: str, further: Collection[str]) -> list[_Listing]:
        index = self._get_index()
        if listings := self._filter_callable(index.listings.get(name, ()), further):
            return listings
        folded_name = _fold_name(name)
        for aliases in index.aliases:
            # A name that several models share is still clear if only one of them can be called.
            candidates = (self._filter_callable(index.listings[id_], further) for id_ in aliases.get(folded_name, ()))
            if len(matches := [matching_listings for matching_listings in candidates if matching_listings]) == 1:
                return matches[0]
        return []

    def _filter_callable(self, listings: Iterable[_Listing], further: Collection[str]) -> list[_Listing]:
        """Returns the listings whose provider can be called; providers with offers always can."""
        if self._providers is None:
            return list(listings)
        return [
            listing
            for listing in listings
            if (provider := listing.model.provider) in self._providers
            or provider in self._offers
            or (provider in further and listing.model.modality in OWN_KEY_MODALITIES)
        ]

    def _get_index(self) -> _CatalogueIndex:
        day = int(self._clock.time() // _DAY)
        if self._cached_index is None or self._cached_day != day:
            offered_listings = [listing for offer in self._offers.values() for listing in offer]
            self._cached_index, self._cached_day = (
                _CatalogueIndex(self._clock.now().date(), self._priced_listings, offered_listings),
                day,
            )
        return self._cached_index

    @cached_property
    def _priced_listings(self) -> tuple[_Listing, ...]:
        return _read_installed_listings() if self._source is None else _parse_listings(self._source())


@cache
def _read_installed_listings() -> tuple[_Listing, ...]:
    return _parse_listings(load_price_map())


def _parse_listings(price_map: PriceMap) -> tuple[_Listing, ...]:
    listings: dict[tuple[str, str], _Listing] = {}
    for key, entry in price_map.items():
        listing = _parse_listing(key, entry)
        if listing is None:
            continue
        # The map has some models twice, with and without the provider's prefix.
        listings.setdefault((listing.model.id, listing.model.litellm), listing)
    return tuple(listings.values())


def _parse_listing(key: str, entry: Mapping[str, Any]) -> _Listing | None:
    modality = _MODALITIES.get(entry.get("mode", ""))
    if modality is None:
        return None
    name = build_model_ref(entry.get("litellm_provider", ""), key, modality)
    price = None if name is None else parse_price(key, entry, modality)
    if name is None or price is None:
        return None
    model = Model(
        id=name.id,
        name=name.title,
        modality=modality,
        price=price,
        context_window=_parse_tokens(entry, "max_input_tokens", "max_tokens"),
        max_output=_parse_tokens(entry, "max_output_tokens", "max_tokens") if modality == "chat" else None,
        litellm=name.litellm,
        provider=name.provider,
        features=_parse_features(entry, modality),
    )
    rates = parse_rates(entry) if modality in ("image", "video") else None
    return _Listing(model, key, name.rank, _parse_date(entry.get("deprecation_date")), parse_tiers(entry, price), rates)


def _parse_features(entry: Mapping[str, Any], modality: Modality) -> frozenset[str]:
    features = {feature for field, feature in _FEATURES.items() if entry.get(field) is True}
    if modality == "chat":
        features.add("streaming")
        endpoints = entry.get("supported_endpoints") or ()
        if entry["mode"] == "responses" or ("/v1/responses" in endpoints and "/v1/chat/completions" not in endpoints):
            # Its vendor has no chat completions for it, so LiteLLM must translate.
            features.add("responses_only")
    return frozenset(features)


def _parse_tokens(entry: Mapping[str, Any], *fields: str) -> int | None:
    return next((entry[field] for field in fields if isinstance(entry.get(field), int) and entry[field] > 0), None)


def _parse_date(text: str | None) -> date | None:
    return None if text is None else date.fromisoformat(text)


def _build_aliases(listings: Iterable[_Listing]) -> dict[str, set[str]]:
    """Maps each folded name to the ids that it may mean: ids and LiteLLM's names, with and without their prefix."""
    aliases: dict[str, set[str]] = {}
    for listing in listings:
        model = listing.model
        for name in (model.id, model.id.partition("/")[2], listing.key, listing.key.rpartition("/")[2]):
            aliases.setdefault(_fold_name(name), set()).add(model.id)
    return aliases


def _fold_name(name: str) -> str:
    """Normalises a name: case and the difference between 4.5 and 4-5 do not matter."""
    return name.lower().replace(".", "-")
