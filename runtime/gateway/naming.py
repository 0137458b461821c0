"""How a model of LiteLLM's price map is called here: `<vendor>/<model>`, as the public catalogues do.

A vendor that sells its own models is asked directly. Models with open weights come from hosts, whose spellings of one
model are brought together so that it is listed once. Resellers of others' models (Azure, Bedrock, Vertex) have no
place here: they are deployments that an operator sets up.
"""

import re
from dataclasses import dataclass

from baobab.runtime.gateway.model import Modality


@dataclass(frozen=True, slots=True)
class ModelRef:
    """`litellm` is the name that LiteLLM calls it by; `rank` orders those who serve one id, the lowest first."""

    id: str
    title: str
    provider: str
    litellm: str
    rank: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _OwnService:
    """A vendor's own service. `keeps` matches the names that are its own models."""

    vendor: str
    provider: str
    name_pattern: re.Pattern[str]
    modalities: frozenset[Modality]


_TEXT: frozenset[Modality] = frozenset(["chat", "embedding"])
_ALL: frozenset[Modality] = frozenset(["chat", "embedding", "image", "video"])
_PICTURES: frozenset[Modality] = frozenset(["image", "video"])
# A colon marks a fine-tune of someone's, a slash the size of an image: neither is a model to ask for.
_ANY = re.compile(r"[^/:@]+")


def _build_service(vendor: str, provider: str, keeps: str = "", sells: frozenset[Modality] = _TEXT) -> _OwnService:
    return _OwnService(vendor, provider, re.compile(keeps) if keeps else _ANY, sells)


# By the price map's name of the provider. Pictures only where LiteLLM can ask for them.
_OWN_SERVICES = {
    "openai": _build_service("openai", "openai", r"(?!ft:|container$)[^/:]+", _ALL),
    "anthropic": _build_service("anthropic", "anthropic"),
    # By a name without "gemini" LiteLLM asks the wrong address for an image.
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

# Hosts of open models, the one to prefer first: where several can be called, it serves and its price counts.
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

# An organisation as hosts spell it -> the vendor.
_ORGANISATIONS = {
    "deepseek-ai": "deepseek",
    "zai-org": "z-ai",
    "minimaxai": "minimax",
    "xiaomimimo": "xiaomi",
    "stepfun-ai": "stepfun",
    "meta": "meta-llama",
}
# Whose model a name without a vendor is, by how it begins.
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
# Closed models, which hosts resell under names and at prices of their own.
_RESOLD = re.compile(r"anthropic/|google/gemini|openai/(?!gpt-oss)|bytedance/seed-|qwen/qwen[0-9.]*-(max|plus|flash)")
# How a host runs the weights, not which they are. Elsewhere "turbo" is a model of its own.
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
"""First parts of ids that no server of an operator may take for its name."""


_PROVIDERS = {name: own.provider for own in _OWN_SERVICES.values() for name in (own.vendor, own.provider)}
_BY_BEGINNING = {"ft:": "openai", "gpt-": "openai", "chatgpt-": "openai", "claude-": "anthropic", "gemini-": "gemini"}


def guess_provider(name: str) -> str:
    """Whom a model is asked of that no list has: the vendor in front of its name, or whose names begin so.

    Such as `openai/gpt-9`, `google/gemini-9` and `ft:gpt-4o-mini:acme::1`; what is no vendor stays as it is.
    """
    vendor, slash, _ = name.partition("/")
    if slash:
        return _PROVIDERS.get(vendor, vendor)
    return next((provider for start, provider in _BY_BEGINNING.items() if name.startswith(start)), "")


def build_model_ref(service: str, key: str, modality: Modality) -> ModelRef | None:
    """What a model of the price map is called; None for one that is not listed.

    `service` is the price map's `litellm_provider`, `key` the entry's own name in it.
    """
    if own := _OWN_SERVICES.get(service):
        return _vendor_model_ref(own, service, key, modality)
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
    spelt = upstream
    if provider == "fireworks_ai":
        # It writes 3p1 where others write 3.1.
        spelt = re.sub(r"(?<=\d)p(?=\d)", ".", _FIREWORKS.sub("", upstream, count=1))
    vendor, _, title = spelt.rpartition("/")
    full = _normalise_title(title)
    plain = (_QUANTISED_AS_TURBO if provider in _TURBO_HOSTS else _QUANTISED).sub("", full)
    organisation = vendor.lower() or next((_FAMILIES[start] for start in _FAMILIES if plain.startswith(start)), "")
    vendor = _ORGANISATIONS.get(organisation, organisation)
    if not vendor or "/" in vendor or _RESOLD.match(f"{vendor}/{plain}"):
        return None
    # Of two spellings at one host the exact one is the model, the other a faster or cheaper way to run it.
    return _build_ref(vendor, plain, title, provider, key, (_RANKS[provider], int(plain != full)))


def _normalise_title(title: str) -> str:
    """A host's spelling of a model brought to the usual one: `Meta-Llama-3.1-8B`, `llama-v3.1-8b` and `llama3.1-8b`."""
    return re.sub(r"^(meta-)?llama-?v?(?=\d)", "llama-", title.lower())


def _fal_model_ref(key: str, modality: Modality) -> ModelRef | None:
    """Of the host of pictures, the videos of vendors who have no service of their own that LiteLLM can ask."""
    found = _FAL_MEDIA.fullmatch(key.removeprefix("fal_ai/"))
    if found is None or modality != "video":
        return None
    vendor = {"kling-video": "kwaivgi", "veo": "google"}.get(found[1], found[1])
    # What one asks for without saying more is a video from a text.
    title = found[2].removesuffix("/text-to-video").replace("/", "-")
    return _build_ref(vendor, title.lower(), title, "fal_ai", key, (_RANKS["fal_ai"], 0))


def _build_ref(vendor: str, model: str, title: str, provider: str, litellm: str, rank: tuple[int, int]) -> ModelRef:
    return ModelRef(f"{vendor}/{model}", f"{_TITLES.get(vendor, vendor)}: {title}", provider, litellm, rank)
