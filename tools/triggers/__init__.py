"""Triggers: what starts by itself in an app when something happens, or at an hour."""

from baobab.tools.triggers import jobs
from baobab.tools.triggers.tools import deliveries, events, functions
from baobab.tools.triggers.tools import triggers as triggers_tools
from baobab.tools.triggers.toolset import triggers

TOOLSETS = (triggers,)
MODULES = (jobs, deliveries, events, functions, triggers_tools)
