"""People: search people and companies, read profiles and look up e-mail addresses, at providers or a simulator."""

from baobab.tools.people import jobs, tools
from baobab.tools.people.toolset import people

TOOLSETS = (people,)
MODULES = (jobs, tools)
