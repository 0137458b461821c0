"""The errors of moves, and the envelope of the toolset."""

from typing import Any

from baobab.tools.core import AppNotFound, BadRequest, BaobabError, Conflict, NotFound
from baobab.tools.core.envelopes import Envelope, Schema


class DestRegionRequired(BadRequest):
    summary = "The region to move to is missing."
    remediation = 'Send {"dest_region": "..."}; op:system_regions lists them.'


class Ineligible(Conflict):
    code = "ineligible"
    summary = "The app cannot be moved to this region now."
    remediation = "Read `reason`; op:system_regions lists the regions, op:moves_active shows the move in progress."

    def __init__(self, reason: str) -> None:
        super().__init__(reason, details={"reason": reason})


class MoveNotFound(NotFound):
    summary = "There is no such move of this app."
    remediation = "Use the `migration_id` that op:moves_start answered."


class TooLateToAbort(Conflict):
    code = "already_flipped"
    summary = "The move can no longer be aborted: requests already go to the new region, or the move has ended."
    remediation = "Move the app back with op:moves_reverse."


class NoReplica(Conflict):
    code = "no_source_replica"
    summary = "There is no copy of the app in the region that it came from."
    remediation = "Use op:moves_start to move the app again."


class CellUnknown(NotFound):
    summary = "There is no such cell."
    remediation = "`baobab cells list` lists them."


class NotDrainable(Conflict):
    summary = "The cell cannot be drained: there is no other one for its apps."
    remediation = "Add a cell of the same geography to the settings, or let another one take apps again."


class MoveEnvelope(Envelope):
    """`{error: <word>, message, remediation, ...details}`."""

    name = "MoveError"

    def __init__(self) -> None:
        super().__init__({AppNotFound: "app not found", DestRegionRequired: "dest_region required"})

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        remedy = self.place_details(error.remedy)
        fields = {"error": self.code(type(error)), "message": error.message, "remediation": remedy}
        return {**error.details, **fields}

    def schema(self) -> Schema:
        text = {"type": "string"}
        properties = {"error": text, "message": text, "remediation": text, "reason": text}
        return {"type": "object", "properties": properties, "required": ["error", "message", "remediation"]}


MOVE_ENVELOPE = MoveEnvelope()
