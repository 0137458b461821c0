"""The types of the arguments and answers of the model tools."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from baobab.runtime.gateway.retry_timeouts import LONGEST_SECONDS

Seconds = Annotated[float, Field(ge=1, le=LONGEST_SECONDS)]


class Timeouts(TypedDict, total=False):
    """Time limits in seconds. They can only be tighter than those of the installation."""

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
    """A model in the form that OpenAI's and Anthropic's clients both read.

    created, created_at: always the beginning of 1970, because no list has the date. owned_by: the model's vendor.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    display_name: str
    type: Literal["model"]
    created_at: str


class ModelList(TypedDict):
    """A page of models; all of them without a `limit`."""

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
    """An organisation's key for a provider; only the end of the key is shown."""

    provider: str
    key: str
    updated_at: datetime


class KeysOfProviders(TypedDict):
    """An organisation's keys for providers, and the providers that it could have keys for."""

    provider_keys: list[KeyOfProvider]
    providers: list[str]


class ProviderKeyRemoved(TypedDict):
    """The answer to the removal of a key."""

    removed: bool
    provider: str


class Deleted(TypedDict):
    id: str
    object: Literal["response"]
    deleted: bool


class ModelServer(TypedDict):
    """A model server; only the end of its key is shown."""

    name: str
    url: str
    key: str | None
    models: Annotated[list[str], Field(description="The models that it last listed. Others of its models work, too.")]
    healthy: Annotated[bool, Field(description="Whether it listed its models at the last check.")]
    problem: Annotated[str | None, Field(description="Why the last check failed.")]
    timeouts: Annotated[Timeouts | None, Field(description="How long its answers may take, in seconds.")]
    probed_at: datetime
    created_at: datetime


class ModelServers(TypedDict):
    """An organisation's model servers, by name."""

    servers: list[ModelServer]


class ServerRemoved(TypedDict):
    """The answer to the removal of a server."""

    removed: bool
    name: str
