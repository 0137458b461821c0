"""What the tools of models take and answer."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from baobab.runtime.gateway.retry_timeouts import LONGEST_SECONDS

Seconds = Annotated[float, Field(ge=1, le=LONGEST_SECONDS)]


class Timeouts(TypedDict, total=False):
    """Bounds in seconds. They only ever tighten those of the installation."""

    first: Annotated[Seconds, Field(description="Until the first byte of a stream.")]
    between: Annotated[Seconds, Field(description="From one piece of a stream to the next.")]
    total: Annotated[Seconds, Field(description="All of a call, with all its tries.")]


_USUAL_SECONDS, _MOST_SECONDS = 3600, 604_800


@with_config(ConfigDict(extra="forbid", strict=True))
class CacheOptions(TypedDict):
    ttl: NotRequired[
        Annotated[int, Field(ge=1, le=_MOST_SECONDS, description="Seconds that an answer is kept; 3600 if left out.")]
    ]


class AiConfig(TypedDict):
    defaultModel: str | None
    maxTokensPerRequest: int | None
    allowedModels: list[str]
    fallbackModels: list[str]
    byokKey: str | None
    byokProvider: str | None
    timeouts: Annotated[Timeouts | None, Field(description="How long its calls may take, in seconds.")]
    dropParams: Annotated[
        bool | None,
        Field(description="Whether parameters that a model does not take are left out."),
    ]


class AiConfigAnswer(TypedDict):
    config: AiConfig


class ModelUsage(TypedDict):
    tokens: int
    cost: float
    requests: int


class AiUsage(TypedDict):
    totalTokens: int
    totalCost: float
    totalRequests: int
    byModel: dict[str, ModelUsage]


class Counted(TypedDict):
    input_tokens: int


class Listed(TypedDict):
    """A model as the clients of both wires read it.

    created, created_at: the beginning of 1970, for no list says when a model was made. owned_by: its vendor.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    display_name: str
    type: Literal["model"]
    created_at: str


class ModelList(TypedDict):
    """All of them, in one piece."""

    object: Literal["list"]
    data: list[Listed]
    has_more: bool
    first_id: str | None
    last_id: str | None


class PublicModel(TypedDict):
    id: str
    name: str
    inputPricePerMTokens: float
    outputPricePerMTokens: float
    contextWindow: int | None


class PublicModels(TypedDict):
    models: list[PublicModel]


class AppModel(TypedDict):
    id: str
    name: str
    context_length: int | None
    modality: Literal["chat", "embedding", "image", "video"]
    prompt_price_per_mtok: float
    completion_price_per_mtok: float
    raw_pricing: dict[str, Any]


class AppModels(TypedDict):
    models: list[AppModel]


class KeyOfProvider(TypedDict):
    """Of a key only the end is shown."""

    provider: str
    key: str
    updated_at: datetime


class KeysOfProviders(TypedDict):
    """An organisation's keys for providers, and whom it could have keys for."""

    provider_keys: list[KeyOfProvider]
    providers: list[str]


class ProviderKeyRemoved(TypedDict):
    """What a removal answers."""

    removed: bool
    provider: str


class Deleted(TypedDict):
    id: str
    object: Literal["response"]
    deleted: bool


class ModelServer(TypedDict):
    """A model server. Of its key only the end is shown."""

    name: str
    url: str
    key: str | None
    models: Annotated[list[str], Field(description="As it last listed them; others of its models work, too.")]
    healthy: Annotated[bool, Field(description="Whether it listed its models when it was last asked.")]
    problem: Annotated[str | None, Field(description="Why it did not.")]
    timeouts: Annotated[Timeouts | None, Field(description="How long its answers may take, in seconds.")]
    probed_at: datetime
    created_at: datetime


class ModelServers(TypedDict):
    """An organisation's model servers, by name."""

    servers: list[ModelServer]


class ServerRemoved(TypedDict):
    """What a removal answers."""

    removed: bool
    name: str
