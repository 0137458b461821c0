"""The errors of custom domains."""

from baobab.tools.core import BadRequest, NotFound
from baobab.tools.core.errors import AlreadyExists
from baobab.tools.core.limits.plan_room import PlanLimitReached


class DomainNotFound(NotFound):
    summary = "The app has no such custom domain."
    remediation = "List the custom domains of the app with op:domains_list."


class HostnameInvalid(BadRequest):
    summary = "This name cannot be a custom domain."
    remediation = "Send a host name that you own, such as `www.example.com`: no scheme, port, path or wildcard."


class DomainTaken(AlreadyExists):
    summary = "The name is in use."
    remediation = (
        "If it is a custom domain of another app of yours, ask whoever runs that one whether it may go. A name that "
        "lost its TXT record is free after three days."
    )


class DomainsNotInPlan(PlanLimitReached):
    code = "feature_not_available"
    summary = "The plan of the organisation has no custom domains."
    remediation = "Use the app's subdomain, or ask the operator for another plan (`baobab plan`)."
