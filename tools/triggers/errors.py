"""The errors of triggers."""

from baobab.tools.core import BadRequest, Conflict, NotFound


class TriggerNotFound(NotFound):
    code = "TRIGGER_NOT_FOUND"
    summary = "There is no trigger of this name."
    remediation = "op:triggers_list lists those of the app."


class TriggerInvalid(BadRequest):
    code = "TRIGGER_INVALID"
    summary = "The trigger is not valid."
    remediation = "Correct the field that details.field names; op:triggers_events lists events with an example of each."


class TooManyTriggers(Conflict):
    code = "TRIGGERS_FULL"
    summary = "The app has reached its limit of triggers."
    remediation = (
        "Let one trigger do the work of several, or ask whoever made one whether it may go (op:triggers_delete)."
    )


class TriggerPaused(Conflict):
    code = "TRIGGER_PAUSED"
    summary = "The trigger is paused."
    remediation = "Resume it first (op:triggers_resume)."


class TriggerOfFunction(Conflict):
    code = "TRIGGER_OF_FUNCTION"
    summary = "This trigger belongs to a function of the app."
    remediation = "Change the triggers of the function with op:functions_deploy; pause this one with op:triggers_pause."


class DeliveryNotFound(NotFound):
    code = "TRIGGER_DELIVERY_NOT_FOUND"
    summary = "The trigger has no such delivery; they are kept for 30 days."
    remediation = "op:triggers_deliveries lists them."
