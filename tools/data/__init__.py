"""The app's own tables: rows, schema, policies."""

from baobab.tools.data import jobs
from baobab.tools.data.tools import (
    batch,
    channels,
    policies,
    realtime,
    row_writes,
    rows,
    schema,
    simulator,
    transfer,
    undo,
)
from baobab.tools.data.toolset import data

TOOLSETS = (data,)
MODULES = (rows, row_writes, batch, schema, policies, realtime, channels, undo, simulator, transfer, jobs)
