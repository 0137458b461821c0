"""Roles as people read them, from the lowest to the highest."""

from dataclasses import dataclass

from baobab.tools.core.auth.roles import Role


@dataclass(frozen=True, slots=True)
class RoleRow:
    """What the members from one role on may do. tools: names of tools, `*` for the rest of a name, that show it."""

    words: str
    role: Role
    tools: tuple[str, ...]


ROLE_NAMES = {"approver": "Approver", "member": "Member", "admin": "Admin", "owner": "Owner"}
ROLE_LINES = {
    "approver": "Sees only the inbox, and decides. Good for staff with a phone.",
    "member": "Also works with data of the apps, and starts agents.",
    "admin": "Also makes agents, opens data, invites people, sets budgets, deletes apps.",
    "owner": "Also makes owners, and deletes the organisation.",
}
ROLE_TABLE = (
    RoleRow("Decide about calls of agents", "approver", ("approvals_*",)),
    RoleRow(
        "Look after the own account and notifications",
        "approver",
        (
            "platform_*",
            "console_*",
            "notices_channel_*",
            "notices_get",
            "notices_messages_list",
            "notices_push_key",
            "notices_update",
            "organisations_list",
            "organisations_get",
            "organisations_accept_invitation",
            "organisations_remove_member",
        ),
    ),
    RoleRow(
        "See tables, files, users, runs, usage and settings of the apps",
        "member",
        ("data_list", "files_list", "users_list", "agents_runs_list", "billing_usage", "config_get"),
    ),
    RoleRow(
        "Change rows, files, keys and documents; start agents",
        "member",
        ("data_insert", "data_delete", "files_put", "files_delete", "kv_put", "kv_delete", "rag_ingest", "agents_run"),
    ),
    RoleRow(
        "Make apps and own keys",
        "member",
        ("apps_init", "templates_clone", "clone_jobs_retry", "api_keys_create", "api_keys_revoke"),
    ),
    RoleRow(
        "Make, change and delete agents and their tool servers",
        "admin",
        (
            "agents_create",
            "agents_update",
            "agents_delete",
            "agents_runs_delete",
            "agents_threads_delete",
            "agents_users_erase",
            "agents_webhook_secret_rotate",
            "mcp_servers_create",
            "mcp_servers_delete",
            "mcp_servers_probe",
        ),
    ),
    RoleRow(
        "Make tables; say who sees what; undo writes of others; empty stores",
        "admin",
        (
            "schema_apply",
            "schema_own_text",
            "rls_*able",
            "rls_*_policy",
            "rls_isolate",
            "realtime_configure",
            "realtime_disable",
            "realtime_channels_replace",
            "kv_expose",
            "kv_expose_replace",
            "kv_unexpose",
            "kv_flush",
            "kv_own_text",
            "kv_rotate_key",
            "files_own_text",
            "data_undo",
        ),
    ),
    RoleRow(
        "Invite, ban and delete users of an app; its sign-in and mails",
        "admin",
        (
            "users_*delete",
            "users_*update",
            "users_providers_create",
            "users_import",
            "users_invite",
            "users_invitations_revoke",
            "users_rotate_keys",
            "users_second_factor_reset",
            "users_sessions_end",
            "mail_outbox_*",
            "mail_settings_*",
            "mail_test",
        ),
    ),
    RoleRow(
        "Change settings of apps; rename, open, pause, move and delete them",
        "admin",
        (
            "apps_update",
            "apps_delete",
            "apps_*link_substrate",
            "apps_set_substrate_autopropagate",
            "config_a*",
            "config_c*",
            "config_jwt",
            "config_pause",
            "config_s*",
            "config_user_tools",
            "config_visibility",
            "ai_config_update",
            "integrations_configure",
            "integrations_credentials",
            "integrations_disable",
            "meetings_calendars_delete",
            "meetings_calendars_set",
            "meetings_transcripts_set",
            "people_erase",
            "meetings_webhook_set",
            "sites_activate",
            "sites_cancel",
            "sites_create",
            "sites_delete",
            "sites_deploy_files",
            "sites_env_change",
            "sites_env_replace",
            "sites_start",
            "sites_sync",
            "domains_add",
            "domains_remove",
            "domains_verify",
            "triggers_delete",
            "triggers_resume",
            "triggers_set",
            "triggers_test",
            "functions_*deploy",
            "functions_fire",
            "triggers_follow_function",
            "functions_*_update",
            "functions_delete",
            "functions_rollback",
            "gateway_meetings_webhook_set",
            "moves_abort",
            "moves_reverse",
            "moves_start",
        ),
    ),
    RoleRow(
        "Set budgets; keys of providers and own model servers; retry jobs",
        "admin",
        (
            "billing_*_budget",
            "provider_keys_set",
            "provider_keys_delete",
            "model_servers_create",
            "model_servers_update",
            "model_servers_delete",
            "model_servers_probe",
            "source_replicas_delete",
            "jobs_cancel",
            "jobs_retry",
        ),
    ),
    RoleRow(
        "Invite people, change roles up to the own one, read the audit log",
        "admin",
        (
            "organisations_invit*",
            "organisations_set_role",
            "organisations_update",
            "organisations_withdraw_invitation",
            "audit_logs_list",
        ),
    ),
    RoleRow("Make owners, delete the organisation", "owner", ("organisations_delete",)),
)
