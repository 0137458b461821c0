"""Builds the ids of the models in LiteLLM's price map: `<vendor>/<model>`, as in public catalogues.

A vendor that sells its own models is called directly. Models with open weights are served by hosts, whose spellings
of one model are normalised so that it is listed once. Resellers (Azure, Bedrock, Vertex) are not included: an operator
sets them up as deployments.
"""

import re
from dataclasses import dataclass

from baobab.runtime.gateway.model import Modality


@dataclass(frozen=True, slots=True)
class ModelRef:
    """The id and names of a model. litellm: LiteLLM's name. rank: orders the providers of one id, the lowest first."""

    id: str
    title: str
    provider: str
    litellm: str
    rank: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _OwnService:
    """A vendor's own service. name_pattern: matches the names of the vendor's own models."""

    vendor: str
    provider: str
    name_pattern: re.Pattern[str]
    modalities: frozenset[Modality]


_TEXT: frozenset[Modality] = frozenset(["chat", "embedding"])
_ALL: frozenset[Modality] = frozenset(["chat", "embedding", "image", "video"])
_PICTURES: frozenset[Modality] = frozenset(["image", "video"])
# A colon marks somebody's fine-tuned model, a slash the size of an image; neither is listed.
_ANY = re.compile(r"[^/:@]+")


def _build_service(vendor: str, provider: str, keeps: str = "", sells: frozenset[Modality] = _TEXT) -> _OwnService:
    return _OwnService(vendor, provider, re.compile(keeps) if keeps else _ANY, sells)


# By the price map's name of the provider. Only services whose images LiteLLM can request have image models.
_OWN_SERVICES = {
    "openai": _build_service("openai", "openai", r"(?!ft:|container$)[^/:]+", _ALL),
    "anthropic": _build_service("anthropic", "anthropic"),
    # For names without "gemini", LiteLLM sends image requests to the wrong address.
    "gemini": _build_service("google", "gemini", r"(?!nano-banana)[^/:@]+", _ALL),
    "mistral": _build_service("mistralai", "mistral", r"(?!zai-|glm-)[^/:]+"),
    "deepseek": _build_service("deepseek", "deepseek"),
    "xai": _build_service("x-ai", "xai"),
    "cohere": _build_service("cohere", "cohere"),
    "cohere_chat": _build_service("cohere", "cohere"),
    "moonshot": _build_service("moonshotai", "moonshot"),
    "zai": _build_service("z-ai", "zai"),
    "dashscope": _build_service("qwen", "dashscope", r"(qwen|qwq|qvq)[^/:]+"),
    "volcengine": _build_service("bytedance", "volcengine", r"doubao-[^/:]+"),
    "minimax": _build_service("minimax", "minimax"),
    "ai21": _build_service("ai21", "ai21", r"jamba-[^/:@]+"),
    "voyage": _build_service("voyage", "voyage"),
    "meta": _build_service("meta", "meta"),
    "black_forest_labs": _build_service("black-forest-labs", "black_forest_labs", sells=_PICTURES),
    # LiteLLM does not tell it which of the models of one address is meant: the dearest answers, whichever was named.
    "stability": _build_service("stabilityai", "stability", r"stable-image-(core|ultra)|sd3\.5-large", _PICTURES),
    "recraft": _build_service("recraft", "recraft", sells=_PICTURES),
    "runwayml": _build_service("runwayml", "runwayml", r"gen[^/:]+", _PICTURES),
}

# Hosts of open models in order of preference: the first that can be called serves, and its price counts.
_HOSTS = {
    "groq": "groq",
    "together_ai": "together_ai",
    "fireworks_ai": "fireworks_ai",
    "fireworks_ai-embedding-models": "fireworks_ai",
    "cerebras": "cerebras",
    "deepinfra": "deepinfra",
    "novita": "novita",
    "fal_ai": "fal_ai",
}
_RANKS = {provider: rank for rank, provider in enumerate(dict.fromkeys(_HOSTS.values()), start=1)}

# Hosts' spelling of an organisation -> the vendor.
_ORGANISATIONS = {
    "deepseek-ai": "deepseek",
    "zai-org": "z-ai",
    "minimaxai": "minimax",
    "xiaomimimo": "xiaomi",
    "stepfun-ai": "stepfun",
    "meta": "meta-llama",
}
# The beginning of a name without a vendor -> the vendor.
_FAMILIES = {
    "llama": "meta-llama",
    "deepseek": "deepseek",
    "qwen": "qwen",
    "qwq": "qwen",
    "glm": "z-ai",
    "kimi": "moonshotai",
    "gpt-oss": "openai",
    "minimax": "minimax",
    "mistral": "mistralai",
    "mixtral": "mistralai",
    "ministral": "mistralai",
    "devstral": "mistralai",
    "gemma": "google",
    "nemotron": "nvidia",
}
# Closed models, which hosts resell under their own names and prices.
_RESOLD = re.compile(r"anthropic/|google/gemini|openai/(?!gpt-oss)|bytedance/seed-|qwen/qwen[0-9.]*-(max|plus|flash)")
# How a host runs the weights, not which weights they are. At other hosts "turbo" is a separate model.
_QUANTISED = re.compile(r"(-(tput|fp4|fp8|bf16|hf))+$")
_QUANTISED_AS_TURBO = re.compile(r"(-(turbo|tput|fp4|fp8|bf16|hf))+$")
_TURBO_HOSTS = frozenset(["together_ai", "deepinfra"])
_FIREWORKS = re.compile(r"accounts/fireworks/models/")
_FAL_MEDIA = re.compile(r"(?:fal-ai/)?(bytedance|minimax|kling-video|pixverse|veo)/(.+)")

_TITLES = {
    "openai": "OpenAI",
    "anthropic": "Anthropic",
    "google": "Google",
    "mistralai": "Mistral AI",
    "deepseek": "DeepSeek",
    "x-ai": "xAI",
    "cohere": "Cohere",
    "moonshotai": "Moonshot AI",
    "z-ai": "Z.ai",
    "qwen": "Qwen",
    "bytedance": "ByteDance",
    "minimax": "MiniMax",
    "ai21": "AI21",
    "voyage": "Voyage AI",
    "meta": "Meta",
    "meta-llama": "Meta",
    "nvidia": "NVIDIA",
    "microsoft": "Microsoft",
    "kwaivgi": "Kling",
    "pixverse": "PixVerse",
    "black-forest-labs": "Black Forest Labs",
    "stabilityai": "Stability AI",
    "recraft": "Recraft",
    "runwayml": "Runway",
}

VENDORS = frozenset(
    [*(own.vendor for own in _OWN_SERVICES.values()), *_FAMILIES.values(), *_ORGANISATIONS.values(), *_TITLES]
)
"""The first parts of ids, which an operator's server must not have as its name."""


_PROVIDERS = {name: own.provider for own in _OWN_SERVICES.values() for name in (own.vendor, own.provider)}
_BY_BEGINNING = {"ft:": "openai", "gpt-": "openai", "chatgpt-": "openai", "claude-": "anthropic", "gemini-": "gemini"}


def guess_provider(name: str) -> str:
    """Guesses the provider of a model that no list has, from its vendor or the beginning of its name.

    It knows `openai/gpt-9`, `google/gemini-9` and `ft:gpt-4o-mini:acme::1`, for example. An unknown vendor is returned
    unchanged; a name without a vendor and with an unknown beginning gives "".
    """
    vendor, slash, _ = name.partition("/")
    if slash:
        return _PROVIDERS.get(vendor, vendor)
    return next((provider for start, provider in _BY_BEGINNING.items() if name.startswith(start)), "")


def build_model_ref(service: str, key: str, modality: Modality) -> ModelRef | None:
    """Builds the reference of a model of the price map; None for a model that is not listed.

    service: the price map's `litellm_provider`. key: the entry's name in the price map.
    """
    if service_ := _OWN_SERVICES.get(service):
        return _vendor_model_ref(service_, service, key, modality)
    provider = _HOSTS.get(service)
    if provider is None:
        return None
    return _fal_model_ref(key, modality) if provider == "fal_ai" else _host_model_ref(provider, key, modality)


def _vendor_model_ref(own: _OwnService, service: str, key: str, modality: Modality) -> ModelRef | None:
    name = key.removeprefix(f"{service}/")
    if modality not in own.modalities or own.name_pattern.fullmatch(name) is None:
        return None
    title = name.removeprefix("doubao-")
    return _build_ref(own.vendor, title.lower(), title, own.provider, f"{own.provider}/{name}", (0, 0))


def _host_model_ref(provider: str, key: str, modality: Modality) -> ModelRef | None:
    prefix, _, upstream = key.partition("/")
    if prefix != provider or modality not in _TEXT:
        return None
    spelling = upstream
    if provider == "fireworks_ai":
        # Fireworks writes 3p1 for 3.1.
        spelling = re.sub(r"(?<=\d)p(?=\d)", ".", _FIREWORKS.sub("", upstream, count=1))
    vendor, _, title = spelling.rpartition("/")
    full_title = _normalise_title(title)
    plain_title = (_QUANTISED_AS_TURBO if provider in _TURBO_HOSTS else _QUANTISED).sub("", full_title)
    organisation = vendor.lower() or next(
        (_FAMILIES[start] for start in _FAMILIES if plain_title.startswith(start)), ""
    )
    vendor = _ORGANISATIONS.get(organisation, organisation)
    if not vendor or "/" in vendor or _RESOLD.match(f"{vendor}/{plain_title}"):
        return None
    # If a host has two spellings, the exact one comes first; the other is a faster or cheaper variant.
    return _build_ref(vendor, plain_title, title, provider, key, (_RANKS[provider], int(plain_title != full_title)))


def _normalise_title(title: str) -> str:
    """Normalises a host's spelling: `Meta-Llama-3.1-8B`, `llama-v3.1-8b` and `llama3.1-8b` become `llama-3.1-8b`."""
    return re.sub(r"^(meta-)?llama-?v?(?=\d)", "llama-", title.lower())


def _fal_model_ref(key: str, modality: Modality) -> ModelRef | None:
    """Builds the reference of a video model at fal.ai whose vendor has no service that LiteLLM can call."""
    match = _FAL_MEDIA.fullmatch(key.removeprefix("fal_ai/"))
    if match is None or modality != "video":
        return None
    vendor = {"kling-video": "kwaivgi", "veo": "google"}.get(match[1], match[1])
    # The plain name means the model that makes a video from a text.
    title = match[2].removesuffix("/text-to-video").replace("/", "-")
    return _build_ref(vendor, title.lower(), title, "fal_ai", key, (_RANKS["fal_ai"], 0))


def _build_ref(vendor: str, model: str, title: str, provider: str, litellm: str, rank: tuple[int, int]) -> ModelRef:
    return ModelRef(f"{vendor}/{model}", f"{_TITLES.get(vendor, vendor)}: {title}", provider, litellm, rank)
