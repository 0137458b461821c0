"""The toolsets of models: the gateway's, and an app's."""

from baobab.runtime.gateway.errors import (
    ContentFiltered,
    ContentRefused,
    ContextTooLong,
    ModelNotFound,
    NoModel,
    RequestRefused,
    UpstreamBusy,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamMalformed,
    UpstreamTimeout,
    UpstreamUnpaid,
    UseVideoEndpoint,
    WrongEndpoint,
)
from baobab.tools.ai.cache_rows import KeptAnswers
from baobab.tools.ai.clones import CLONES
from baobab.tools.ai.errors import AI_ENVELOPE, APP_AI_ENVELOPE, MESSAGES_ENVELOPE, ModelNotAllowed
from baobab.tools.core import Audit, RateLimited, Toolset, Unavailable
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted

CALLING = (
    NoModel,
    ModelNotFound,
    WrongEndpoint,
    UseVideoEndpoint,
    RequestRefused,
    ContextTooLong,
    ContentRefused,
    ContentFiltered,
    UpstreamFailed,
    UpstreamDenied,
    UpstreamUnpaid,
    UpstreamMalformed,
    UpstreamTimeout,
    UpstreamBusy,
    CreditsExhausted,
    BudgetExhausted,
)
IN_AN_APP = (*CALLING, ModelNotAllowed)
CALLED = Audit("ai.call", category="ai", action="invoke", resource="model", tallied=True)
MOST_BYTES = 32 * 2**20

gateway = Toolset(
    "gateway",
    "Models in OpenAI's wire format, at the expense of the caller's organisation.",
    base="/v1",
    envelope=AI_ENVELOPE,
    raises=(RateLimited, Unavailable),
    key_header="x-api-key",
)
messages = Toolset(
    "messages",
    "Models in Anthropic's wire format, at the expense of the caller's organisation.",
    base="/v1",
    envelope=MESSAGES_ENVELOPE,
    raises=(RateLimited, Unavailable),
    key_header="x-api-key",
)
app_messages = Toolset(
    "app_messages",
    "An app's models in Anthropic's wire format, under its settings.",
    base="/v1/{app_id}",
    envelope=MESSAGES_ENVELOPE,
    raises=(RateLimited, Unavailable),
    key_header="x-api-key",
)
model_servers = Toolset(
    "model_servers",
    "An organisation's own model servers, and its keys for providers.",
    base="/v1/ai",
)
ai = Toolset(
    "ai",
    "An app's models: chat, embeddings, settings and usage.",
    base="/v1/{app_id}",
    envelope=APP_AI_ENVELOPE,
    raises=(RateLimited, Unavailable),
    key_header="x-api-key",
    data=KeptAnswers(),
    clones=CLONES,
)
