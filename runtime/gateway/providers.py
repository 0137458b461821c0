"""The providers that this installation can call: vendors whose keys are in the environment, and declared servers.

The variables have the names that each vendor documents; nothing else has to be set.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from baobab.runtime.gateway.naming import VENDORS
from baobab.runtime.gateway.retry_timeouts import NO_TIMEOUTS, RetryTimeouts

Wire = Literal["openai", "translated"]

SERVER_NAME = r"[a-z][a-z0-9-]{0,31}"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of models, with its address and key.

    name: the value of `Model.provider`. api_base: empty for LiteLLM's own address of the vendor.
    wire: "openai" if bytes in OpenAI's wire format may be relayed; otherwise LiteLLM translates.
    lists_models: its models are listed at GET {api_base}/models; those of all others are in the price map.
    is_own: a server of the operator's; its models without a price cost nothing.
    is_guarded: a customer gave the address, so it is reached under the egress rules only.
    retry_timeouts: how long it may take.
    """

    name: str
    api_base: str
    api_key: str = field(repr=False)
    wire: Wire
    lists_models: bool = False
    is_own: bool = False
    is_guarded: bool = False
    retry_timeouts: RetryTimeouts = NO_TIMEOUTS


@dataclass(frozen=True, slots=True)
class DeclaredServer:
    """A model server that settings declare; `api_base` ends without a slash."""

    name: str
    api_base: str


@dataclass(frozen=True, slots=True)
class _Vendor:
    """A vendor, with the environment variables for its key and address.

    default_base: empty if LiteLLM translates, which knows the vendor's addresses and paths.
    has_text: False if the vendor has models of pictures only; customers' own keys are for text models.
    """

    name: str
    key_variables: tuple[str, ...]
    base_variables: tuple[str, ...]
    default_base: str = ""
    lists_models: bool = False
    has_text: bool = True


_VENDORS = (
    _Vendor("openai", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com/v1"),
    _Vendor("anthropic", ("ANTHROPIC_API_KEY",), ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE")),
    _Vendor("gemini", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), ("GEMINI_API_BASE",)),
    # Its API resembles OpenAI's, and refuses some of what OpenAI's takes.
    _Vendor("mistral", ("MISTRAL_API_KEY",), ("MISTRAL_BASE_URL", "MISTRAL_API_BASE")),
    _Vendor(
        "deepseek", ("DEEPSEEK_API_KEY",), ("DEEPSEEK_BASE_URL", "DEEPSEEK_API_BASE"), "https://api.deepseek.com/v1"
    ),
    _Vendor("groq", ("GROQ_API_KEY",), ("GROQ_BASE_URL", "GROQ_API_BASE"), "https://api.groq.com/openai/v1"),
    _Vendor(
        "together_ai",
        ("TOGETHER_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_API_KEY"),
        ("TOGETHER_BASE_URL", "TOGETHER_AI_API_BASE"),
        "https://api.together.ai/v1",
    ),
    _Vendor(
        "fireworks_ai",
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
        ("FIREWORKS_BASE_URL", "FIREWORKS_API_BASE"),
        "https://api.fireworks.ai/inference/v1",
    ),
    _Vendor("xai", ("XAI_API_KEY",), ("XAI_BASE_URL", "XAI_API_BASE"), "https://api.x.ai/v1"),
    _Vendor(
        "openrouter",
        ("OPENROUTER_API_KEY",),
        ("OPENROUTER_BASE_URL", "OPENROUTER_API_BASE"),
        "https://openrouter.ai/api/v1",
        lists_models=True,
    ),
    _Vendor(
        "cerebras", ("CEREBRAS_API_KEY",), ("CEREBRAS_BASE_URL", "CEREBRAS_API_BASE"), "https://api.cerebras.ai/v1"
    ),
    _Vendor(
        "deepinfra",
        ("DEEPINFRA_API_KEY", "DEEPINFRA_TOKEN"),
        ("DEEPINFRA_BASE_URL", "DEEPINFRA_API_BASE"),
        "https://api.deepinfra.com/v1/openai",
    ),
    _Vendor("novita", ("NOVITA_API_KEY",), ("NOVITA_BASE_URL", "NOVITA_API_BASE"), "https://api.novita.ai/v3/openai"),
    _Vendor(
        "moonshot", ("MOONSHOT_API_KEY",), ("MOONSHOT_BASE_URL", "MOONSHOT_API_BASE"), "https://api.moonshot.ai/v1"
    ),
    _Vendor("zai", ("ZAI_API_KEY",), ("ZAI_BASE_URL", "ZAI_API_BASE"), "https://api.z.ai/api/paas/v4"),
    _Vendor(
        "dashscope",
        ("DASHSCOPE_API_KEY",),
        ("DASHSCOPE_BASE_URL", "DASHSCOPE_API_BASE"),
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    ),
    _Vendor(
        "volcengine",
        ("ARK_API_KEY", "VOLCENGINE_API_KEY"),
        ("ARK_BASE_URL", "VOLCENGINE_API_BASE"),
        "https://ark.cn-beijing.volces.com/api/v3",
    ),
    _Vendor("minimax", ("MINIMAX_API_KEY",), ("MINIMAX_BASE_URL", "MINIMAX_API_BASE"), "https://api.minimax.io/v1"),
    _Vendor("ai21", ("AI21_API_KEY",), ("AI21_BASE_URL", "AI21_API_BASE"), "https://api.ai21.com/studio/v1"),
    _Vendor("meta", ("META_API_KEY",), ("META_BASE_URL", "META_API_BASE"), "https://api.meta.ai/v1"),
    _Vendor("cohere", ("COHERE_API_KEY", "CO_API_KEY"), ("COHERE_API_BASE",)),
    _Vendor("voyage", ("VOYAGE_API_KEY",), ("VOYAGE_API_BASE",)),
    _Vendor("black_forest_labs", ("BFL_API_KEY",), ("BFL_API_BASE",), has_text=False),
    _Vendor("stability", ("STABILITY_API_KEY",), ("STABILITY_API_BASE",), has_text=False),
    _Vendor("recraft", ("RECRAFT_API_KEY", "RECRAFT_API_TOKEN"), ("RECRAFT_API_BASE",), has_text=False),
    _Vendor("runwayml", ("RUNWAYML_API_SECRET", "RUNWAYML_API_KEY"), ("RUNWAYML_API_BASE",), has_text=False),
    _Vendor("fal_ai", ("FAL_KEY", "FAL_AI_API_KEY"), ("FAL_AI_API_BASE",), has_text=False),
)
# A server of one of these names would take over the model ids of another provider.
RESERVED_NAMES = VENDORS | {vendor.name for vendor in _VENDORS} | {"baobab", "openrouter"}


def list_providers(environment: Mapping[str, str], servers: Sequence[DeclaredServer] = ()) -> list[Provider]:
    """Returns the vendors with a key in `environment`, then the declared servers.

    The key of a server is in a variable of its name: CORP_LLM_API_KEY for `corp-llm`. A server may have no key.
    """
    vendors = [
        _build_vendor_provider(vendor, environment, key)
        for vendor in _VENDORS
        if (key := _first_set(environment, vendor.key_variables))
    ]
    return [*vendors, *(_build_server_provider(server, environment) for server in servers)]


def list_vendors(environment: Mapping[str, str]) -> list[Provider]:
    """Returns all vendors of text models, without a key: customers may call these with keys of their own."""
    return [_build_vendor_provider(vendor, environment, "") for vendor in _VENDORS if vendor.has_text]


def parse_servers(text: str) -> tuple[DeclaredServer, ...]:
    """Parses servers as settings declare them: `name=https://host/v1`, separated by commas.

    Raises ValueError with a message of one line for anything else.
    """
    servers = [_parse_server(part.strip()) for part in text.split(",") if part.strip()]
    names = [server.name for server in servers]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two servers are called {twice}")
    return tuple(servers)


def build_own_server(name: str, api_base: str, api_key: str = "") -> Provider:
    """Builds the provider for a server of the operator's that speaks OpenAI's wire format."""
    return Provider(name, api_base, api_key, "openai", lists_models=True, is_own=True)


def _build_vendor_provider(vendor: _Vendor, environment: Mapping[str, str], key: str) -> Provider:
    return Provider(
        name=vendor.name,
        api_base=_first_set(environment, vendor.base_variables).rstrip("/") or vendor.default_base,
        api_key=key,
        wire="openai" if vendor.default_base else "translated",
        lists_models=vendor.lists_models,
    )


def _build_server_provider(server: DeclaredServer, environment: Mapping[str, str]) -> Provider:
    variable = server.name.upper().replace("-", "_") + "_API_KEY"
    return build_own_server(server.name, server.api_base, environment.get(variable, "").strip())


def _parse_server(text: str) -> DeclaredServer:
    name, equals, url = (part.strip() for part in text.partition("="))
    if not equals or re.fullmatch(SERVER_NAME, name) is None:
        # The message does not repeat the text: a URL in the wrong place may contain a password.
        raise ValueError("a server is name=URL, and its name begins with a letter and has letters, digits and dashes")
    if name in RESERVED_NAMES:
        raise ValueError(f"{name} is the name of a vendor; give the server another")
    try:
        parts = urlsplit(url)
        port_is_right = parts.port is None or parts.port > 0
    except ValueError as exc:
        raise ValueError(f"the address of {name} is not a URL") from exc
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_right:
        raise ValueError(f"the address of {name} must be an http:// or https:// address, such as https://host/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"the address of {name} takes no password, query or fragment; the key is set by a variable")
    return DeclaredServer(name, url.rstrip("/"))


def _first_set(environment: Mapping[str, str], variables: Sequence[str]) -> str:
    # A variable that is set but empty counts as not set.
    return next((value for name in variables if (value := environment.get(name, "").strip())), "")
