"""What is kept of an app is declared: nothing stays behind when it is moved or deleted."""

from baobab import tools
from baobab.storage.sql.tables import metadata

# What tells of an app after it is gone, or in which an app is only named.
NOT_OF_THE_APP = {
    "agent_live_texts.app_id": "goes with its run, and is not kept",
    "agent_stream_tokens.app_id": "goes with its run; open for 15 minutes",
    "api_keys.only_app_id": "a limit of a key; one whose app is gone opens nothing",
    "app_freezes.app_id": "written by what freezes, moves and erases",
    "app_moves.app_id": "the history of moves, kept for the organisation",
    "approvals.app_id": "decisions, kept for 90 days",
    "apps.template_source_app_id": "where an app came from",
    "audit_logs.app_id": "the audit log outlives what it is about",
    "clone_jobs.dest_app_id": "the history of clones, kept for 90 days for whoever asked",
    "clone_jobs.source_app_id": "the history of clones, kept for 90 days for whoever asked",
    "clone_origins.source_app_id": "where an app came from",
    "credit_reservations.app_id": "money, kept for the organisation",
    "credit_usage.app_id": "money, kept for the organisation",
    "events.app_id": "in delivery; forgotten when delivered",
    "failures.app_id": "forgotten after seven days",
    "invitations.app_ids": "a limit of a future approver; an app that is gone asks nothing",
    "meeting_bots.app_id": "leave their calls, and are deleted when they are paid (meetings_sweep)",
    "meeting_calendar_events.app_id": "deleted by meetings_sweep",
    "meeting_calendars.app_id": "deleted by meetings_sweep",
    "meeting_deliveries.app_id": "deleted by meetings_sweep",
    "meeting_settings.app_id": "deleted by meetings_sweep",
    "meeting_usage.app_id": "money, kept until the bot is deleted",
    "members.app_ids": "a limit of an approver; an app that is gone asks nothing",
    "oauth_codes.only_app_id": "a limit of a key that is about to be made",
    "response_cache.app_id": "forgotten when its time is over",
    "substrate_action_ledger.source_app_id": "who proposed an action, kept for the organisation",
    "substrate_entities.linked_app_id": "what an organisation knows of an app of its own",
    "substrate_outbox_targets.source_app_id": "a filter of deliveries; an app that is gone proposes nothing",
    "substrate_source_artifacts.source_app_id": "where an organisation's memory comes from",
    "suggestions.app_id": "what a developer suggested to the operator",
}


def test_the_key_of_a_table_of_an_app_begins_with_the_app() -> None:
    tables = [each.table for toolset in tools.toolsets() for each in toolset.app_tables]
    others = {table.name for table in tables if next(iter(table.primary_key)).name != "app_id"}
    assert others == set()


def test_every_table_that_names_an_app_is_declared_or_goes_with_the_row_of_the_app() -> None:
    names = {each.table.name for toolset in tools.toolsets() for each in toolset.app_tables}
    columns = set()
    for table in metadata.tables.values():
        for column in table.columns:
            if "app_id" not in column.name or table.name in names:
                continue
            goes_along = [key.ondelete for key in column.foreign_keys if key.target_fullname == "apps.id"]
            if goes_along != ["CASCADE"]:
                columns.add(f"{table.name}.{column.name}")
    assert columns == NOT_OF_THE_APP.keys()
