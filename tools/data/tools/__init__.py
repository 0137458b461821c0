"""The tools of an app's tables."""

from baobab.tools.data.tools import (
    batch,
    channels,
    policies,
    realtime,
    row_writes,
    rows,
    schema,
    simulator,
    sql,
    transfer,
    undo,
)

MODULES = (rows, row_writes, batch, schema, policies, realtime, channels, undo, simulator, sql, transfer)
