"""Functions: code of an app that runs beside its data."""

from baobab.tools.functions import jobs
from baobab.tools.functions.tools import agent_tools, calls, firing, logs, settings, versions, webhooks
from baobab.tools.functions.tools import functions as functions_tools
from baobab.tools.functions.toolset import function_calls, functions

TOOLSETS = (functions, function_calls)
MODULES = (jobs, functions_tools, settings, versions, logs, calls, firing, webhooks, agent_tools)
