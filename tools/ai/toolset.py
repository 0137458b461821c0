"""The two families of model tools: the gateway's, and an app's."""

from baobab.runtime.gateway.errors import (
    ContextTooLong,
    ModelNotFound,
    NoModel,
    RequestRefused,
    UpstreamBusy,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamMalformed,
    UpstreamTimeout,
    UseVideoEndpoint,
    WrongEndpoint,
)
from baobab.tools.ai.errors import AI_ENVELOPE, APP_AI_ENVELOPE, ModelNotAllowed
from baobab.tools.credit_errors import BudgetExhausted, CreditsExhausted
from baobab.tools.errors import RateLimited, Unavailable
from baobab.tools.tool import Audit, Toolset

CALLING = (
    NoModel,
    ModelNotFound,
    WrongEndpoint,
    UseVideoEndpoint,
    RequestRefused,
    ContextTooLong,
    UpstreamFailed,
    UpstreamDenied,
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
    "Models by the OpenAI wire, at the expense of the caller's organisation.",
    base="/v1",
    envelope=AI_ENVELOPE,
    raises=(RateLimited, Unavailable),
)
ai = Toolset(
    "ai",
    "An app's models: chat, embeddings, which are allowed, what they cost.",
    base="/v1/{app_id}",
    envelope=APP_AI_ENVELOPE,
    raises=(RateLimited, Unavailable),
)
