"""The errors of organisations, members and invitations."""

from baobab.tools.core import BadRequest, Conflict, Forbidden, NotFound
from baobab.tools.core.errors import AlreadyExists


class OrganisationNotFound(NotFound):
    summary = "There is no such organisation."
    remediation = "op:organisations_list lists the organisations that you belong to."


class MemberNotFound(NotFound):
    summary = "The organisation has no such member."
    remediation = "op:organisations_members lists the members."


class InvitationNotFound(NotFound):
    summary = "There is no such invitation."
    remediation = "Ask an admin of the organisation for a new invitation."


class AboveOwnRole(Forbidden):
    summary = "You cannot grant, change or remove a role above your own."
    remediation = "Ask an owner of the organisation."


class InvitedAnother(Forbidden):
    summary = "The invitation names the e-mail address of another account."
    remediation = "Sign in with the account that was invited, or ask for an invitation to your own address."


class AppsNotOfOrganisation(BadRequest):
    summary = "`app_ids` chooses apps of this organisation for the role `approver`, and for no other role."
    remediation = "Name apps of this organisation (op:apps_list), or leave `app_ids` out."


class OrganisationHasApps(Conflict):
    code = "STATE_PREREQUISITE_MISSING"
    summary = "The organisation still has apps."
    remediation = (
        "Keep it: an organisation is deleted once it has no apps, and deleting an app loses its data for good. Ask "
        "their owners what is to become of them."
    )


class LastOwner(Conflict):
    code = "STATE_INVALID_TRANSITION"
    summary = "An organisation keeps at least one owner."
    remediation = "Make another member an owner first, with op:organisations_set_role."


class PersonalOrganisation(Conflict):
    code = "STATE_INVALID_TRANSITION"
    summary = "A personal organisation does not allow this."
    remediation = "Make an organisation with op:organisations_create and work there."


class InvitationSpent(Conflict):
    code = "STATE_INVALID_TRANSITION"
    summary = "The invitation was accepted before, or has expired."
    remediation = "Ask an admin of the organisation for a new invitation."


class AlreadyMember(AlreadyExists):
    summary = "That account is a member already."
    remediation = "Change its role with op:organisations_set_role."


class OrganisationFull(Conflict):
    summary = "The limit of this organisation is reached."
    remediation = (
        "Use what there is, or ask its owner what is needed no longer; details.limit says how many there may be."
    )
