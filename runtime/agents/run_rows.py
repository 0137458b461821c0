"""Builds and inserts rows of `agent_runs`, for runs of every origin."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from baobab.storage.sql.statements import Statements

_CALLER = ("caller_kind", "caller", "subject", "person", "caller_user_id", "caller_ip", "organisation_id", "account_id")


def build_run_row(agent: Any, run_id: str, run_input: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Builds the initial `agent_runs` row, to which the caller adds the columns of who starts the run."""
    return {
        "id": run_id,
        "app_id": agent.app_id,
        "agent_id": agent.id,
        "agent": agent.name,
        "model": agent.default_model,
        "graph_spec": agent.graph_spec,
        "taint_checks": agent.taint_checks,
        "approvers": agent.approvers,
        "status": "queued",
        "input": dict(run_input),
        "last_seq": 0,
        "active_seconds": 0.0,
        "cost": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "tainted": False,
        "depth": 0,
        "created_at": now,
    }


def copy_caller(run: Any) -> dict[str, Any]:
    """Copies the columns of who started a run, for another run of the same caller."""
    return {name: getattr(run, name) for name in _CALLER}


def insert_run(statements: Statements, row: Mapping[str, Any]) -> None:
    """Inserts a run, unless there is one of its id."""
    columns, marks = ", ".join(row), ", ".join("?" * len(row))
    values = [json.dumps(value) if isinstance(value, dict | list) else value for value in row.values()]
    text = f"INSERT INTO agent_runs ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608 - our names
    statements.rows(text, *values)
