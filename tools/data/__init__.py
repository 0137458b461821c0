"""The app's own tables: rows, schema, policies."""

from baobab.tools.data import jobs, tools
from baobab.tools.data.toolset import data

TOOLSETS = (data,)
MODULES = (*tools.MODULES, jobs)
