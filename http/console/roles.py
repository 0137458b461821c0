"""Roles as people read them, from the lowest to the highest."""

ROLE_NAMES = {"approver": "Approver", "member": "Member", "admin": "Admin", "owner": "Owner"}
ROLE_LINES = {
    "approver": "Sees only the inbox, and decides. Good for staff with a phone.",
    "member": "Also works with data and agents of the apps.",
    "admin": "Also opens data, invites people, makes keys of apps.",
    "owner": "Also sets budgets and owners, and deletes apps.",
}
ROLE_TABLE = (
    ("Decide about calls of agents", ("approver", "approvals_approve")),
    ("See tables, files, users and runs", ("member", "data_list")),
    ("Change rows and files, start agents, make own keys", ("member", "data_insert")),
    ("Open data to everybody, make agents and keys of apps, invite, see the audit log", ("admin", "agents_create")),
    ("Make owners, delete apps and the organisation", ("owner", "apps_delete")),
)
"""What each role may: in words, the lowest role that may, and a tool that shows it."""
