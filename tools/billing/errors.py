"""The errors of billing."""

from baobab.tools.core import BadRequest, Conflict, NotFound


class SubjectNotFound(NotFound):
    summary = "The organisation has no such app or live key."
    remediation = "op:apps_list and op:api_keys_list list them; `org_id` names another organisation of yours."


class BudgetNotFound(NotFound):
    summary = "There is no such budget."
    remediation = "op:billing_budgets lists the budgets of the organisation."


class TooManyBudgets(Conflict):
    summary = "The organisation has reached its limit of budgets."
    remediation = "Change a budget that there is; details.limit is how many there may be."


class TooMuchUsage(BadRequest):
    summary = "The usage has too many rows for one answer."
    remediation = "Ask for fewer days, name an app or a key, or leave parts out of `by`."
