"""The family of key-value tools."""

from baobab.tools.core.binding import Audit
from baobab.tools.core.envelopes import Envelope
from baobab.tools.core.errors import AppMigrating, RateLimited, Unavailable
from baobab.tools.core.toolset import Toolset
from baobab.tools.kv.data import KvData
from baobab.tools.kv.errors import KvEnvelope
from baobab.tools.kv.limits import KV_OPERATIONS

KV_ENVELOPE: Envelope = KvEnvelope()
WRITTEN = Audit("kv.write", category="data", resource="key", tallied=True)


kv = Toolset(
    "kv",
    "The app's key-value store.",
    base="/v1/{app_id}/kv",
    envelope=KV_ENVELOPE,
    raises=(RateLimited, Unavailable, AppMigrating),
    keeps_failures="key",
    data=KvData(),
    limit=KV_OPERATIONS,
)
