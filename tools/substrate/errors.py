"""The errors of the substrate."""

from baobab.tools.core import BadRequest, Conflict, Forbidden, NotFound, Unauthenticated
from baobab.tools.core.limits.plan_room import PlanLimitReached


class UnknownCapability(BadRequest):
    code = "unknown_capability"
    summary = "There is no capability with this name."
    remediation = "Use one of details.capabilities; op:substrate_capabilities describes them."


class InvalidPayload(BadRequest):
    summary = "The payload does not fit the capability."
    remediation = "Correct the named field; op:substrate_capabilities shows the schema of each payload."


class ActionNotFound(NotFound):
    summary = "There is no such action."
    remediation = "op:substrate_actions lists the actions of this substrate."


class EntityNotFound(NotFound):
    summary = "There is no such entity."
    remediation = "op:substrate_entities lists and finds the entities of this substrate."


class DecisionNotFound(NotFound):
    summary = "There is no such decision."
    remediation = "op:substrate_memory_list lists decisions with their ids."


class LearningNotFound(NotFound):
    summary = "There is no such learning."
    remediation = "op:substrate_memory_list lists learnings with their ids."


class MemoryNotFound(NotFound):
    summary = "There is no such memory and no such entity, and the ledger has nothing of it."
    remediation = "op:substrate_memory_list and op:substrate_entities list what there is, with ids."


class InvalidImport(BadRequest):
    summary = "The file cannot be imported; nothing was changed."
    remediation = "Correct what the message names. op:substrate_export makes files of this form."


class NotLines(BadRequest):
    code = "VALIDATION_INVALID_TYPE"
    status = 415
    summary = "An import is a file of JSON lines."
    remediation = "Send it with the header `Content-Type: application/x-ndjson`."


class ProvenanceForged(BadRequest):
    code = "provenance_forged"
    summary = "The file says who wrote its rows, but its signature does not prove it."
    remediation = "Import the file as it was exported, with `trusted_key` if another substrate signed it."


class CommitmentNotFound(NotFound):
    summary = "There is no such commitment."
    remediation = "op:substrate_memory_list lists commitments with their ids."


class PrincipleNotFound(NotFound):
    summary = "There is no such principle in force."
    remediation = "op:substrate_principles lists the principles."


class ArtifactNotFound(NotFound):
    summary = "There is no such source artifact."
    remediation = "op:substrate_source_artifacts lists the artifacts of this substrate."


class SnapshotNotFound(NotFound):
    summary = "There is no snapshot of this day."
    remediation = "op:substrate_snapshots lists the snapshots."


class NotLinked(Conflict):
    code = "not_linked"
    summary = "The app is linked to no substrate."
    remediation = "Link it with op:apps_link_substrate first."


class ConflictNotFound(NotFound):
    summary = "There is no such policy conflict."
    remediation = "op:substrate_policy_conflicts lists the conflicts."


class WrongStatus(Conflict):
    code = "wrong_status"
    summary = "The current status no longer allows this."
    remediation = "Read it again: details.status is the current status."


class PreconditionFailed(Conflict):
    code = "precondition_failed"
    summary = "The entity was changed after the moment in `if_updated_at`."
    remediation = "Read the entity again and decide again; details.updated_at is when it was changed."


class EmailTaken(Conflict):
    code = "email_taken"
    summary = "Another entity has this e-mail address."
    remediation = "Merge the two with the capability merge_entities; details.entity_id is the other one."


class TypeDiffers(Conflict):
    code = "entity_type_differs"
    summary = "The entity that was found has another type."
    remediation = "Send the type that it has (details.type), or leave out what finds it."


class NotReversible(Conflict):
    code = "not_reversible"
    summary = "Actions of this capability cannot be undone."
    remediation = "Propose an action that corrects it; op:substrate_capabilities says which can be undone."


class AlreadyReverted(Conflict):
    code = "already_reverted"
    summary = "The action was undone before."
    remediation = "There is nothing to do; details.reverted_by_action_id is the action that did it."


class BuiltUpon(Conflict):
    code = "built_upon"
    summary = "Later actions build on this one."
    remediation = (
        "Read those in details.action_ids. If they are to go too, undo them first, or say `cascade: true`: an undo is "
        "not undone."
    )


class ForbiddenByPrinciple(Conflict):
    code = "policy_conflict_open"
    summary = "A principle forbids this action."
    remediation = "Resolve the conflict in details.conflict_ids first, with op:substrate_resolve_policy_conflict."


class HeldByPrinciple(Conflict):
    code = "held_by_principle"
    summary = "A principle forbids the import. Nothing was changed."
    remediation = "Leave out what it forbids, or propose it as actions, or retire a principle of details.principle_ids."


class SkipNotAllowed(Forbidden):
    summary = "Only an owner of the organisation, signed in as a person, may skip the approval of an action."
    remediation = "Leave out `dangerously_skip_approval`; the action then waits for a person."


class AgentsDoNotDecide(Forbidden):
    summary = "Only people can decide about actions and change the policy; agents cannot."
    remediation = "Ask a person to do it: signed in over REST or in the console, or with a key that has no limits."


class MemoryFull(PlanLimitReached):
    summary = "The organisation's plan has no room for more memory."
    remediation = (
        "Ask the operator of this server for a larger plan, which they set with `baobab plan`. The capability `forget` "
        "of op:substrate_propose erases for good: propose only what its owner says is needed no longer."
    )


OF_CAPABILITIES = (
    MemoryFull,
    ActionNotFound,
    EntityNotFound,
    DecisionNotFound,
    LearningNotFound,
    CommitmentNotFound,
    MemoryNotFound,
    PrincipleNotFound,
    ArtifactNotFound,
    WrongStatus,
    PreconditionFailed,
    EmailTaken,
    TypeDiffers,
    NotReversible,
    AlreadyReverted,
    BuiltUpon,
)
"""What the plans of capabilities refuse."""


class RuleNotFound(NotFound):
    summary = "There is no such attention rule."
    remediation = "op:substrate_rules lists the rules of this substrate."


class InvalidRule(BadRequest):
    summary = "The attention rule is not valid."
    remediation = "Correct details.field; op:substrate_rule_preview tries a rule without keeping it."


class TooManyRules(Conflict):
    code = "too_many_rules"
    summary = "The substrate has as many attention rules as it may have."
    remediation = "Change a rule that there is with op:substrate_rule_replace; details.most is the limit."


class TargetNotFound(NotFound):
    summary = "The capability has no outbox target."
    remediation = "op:substrate_outbox_targets lists the targets."


class DeliveryNotFound(NotFound):
    summary = "There is no such delivery in the outbox."
    remediation = "op:substrate_outbox lists the deliveries."


class TicketInvalid(Unauthenticated):
    summary = "The ticket is unknown, used or expired."
    remediation = "Get another with op:substrate_ws_ticket; a ticket opens one stream within a minute."
