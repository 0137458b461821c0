"""The errors of apps."""

from baobab.tools.core import BadRequest
from baobab.tools.core.errors import AlreadyExists


class RegionUnknown(BadRequest):
    summary = "There is no such region."
    remediation = "Use one of the regions that op:system_regions lists, or leave it out."


class SubdomainTaken(AlreadyExists):
    summary = "The subdomain is taken or reserved."
    remediation = "Choose another subdomain, or leave it out: one is then derived from the name."


class NameTaken(AlreadyExists):
    summary = "The organisation already has an app with this name."
    remediation = "Choose another name; op:apps_list lists those in use."


class ToolNotForUsers(BadRequest):
    code = "USER_TOOLS_REFUSED"
    summary = "Users of an app cannot call this tool."
    remediation = "Name tools of details.possible only."


class FunctionNotDeployed(BadRequest):
    code = "RESOURCE_NOT_FOUND"
    summary = "The app has no function with this name."
    remediation = "Deploy the function first, or send null to remove the hook."


class StorageBeyondPlan(BadRequest):
    summary = "The plan of the organisation does not allow this much storage."
    remediation = "Send at most details.limit_bytes, or ask the operator for another plan (`baobab plan`)."
