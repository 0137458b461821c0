"""Other spellings of arguments that models use: a name from another tool, or a value in a nearby form.

Only what can mean one thing is read so. Everything else is left as it is, and validation says what is wrong with it.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic_core import from_json

from baobab.tools.core.call import Tool
from baobab.tools.core.errors import BadRequest

_SAME: tuple[tuple[str, ...], ...] = (
    ("table", "table_name"),
    ("organization_id", "org_id", "organisation_id"),
    ("where", "filter", "filters"),
    ("values", "row", "rows", "record", "records"),
    ("changes", "patch", "set"),
    ("row_id", "id"),
    ("policy_name", "policy"),
    ("using_expression", "using"),
    ("with_check_expression", "with_check", "check"),
    ("query", "question"),
    ("document_id", "id"),
    ("approval_id", "id"),
    ("object_id", "file_id", "id"),
    ("user_id", "id"),
    ("action_id", "id"),
    ("key_id", "id"),
    ("topK", "top_k", "limit"),
)
"""Names of one argument. An unknown name is read as the one of its group that a tool takes."""
_OF_TOOLSETS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "agents": (("name", "agent", "agent_name"), ("id", "run_id"), ("graph_spec", "graph", "spec"), ("id", "server_id")),
    "rag": (("name", "collection", "collection_name"),),
    "files": (("filename", "name", "path"),),
    "kv": (("ttl", "ttl_seconds", "expires_in"), ("by", "amount")),
    "jobs": (("job_id", "id"),),
    "people": (
        ("currentRoleTitle", "current_role_title"),
        ("pastRoleTitle", "past_role_title"),
        ("currentCompanyName", "current_company_name"),
        ("currentCompanyIndustry", "current_company_industry"),
        ("educationSchoolName", "education_school_name"),
        ("educationDegreeName", "education_degree_name"),
        ("educationFieldOfStudy", "education_field_of_study"),
        ("employeeCountMax", "employee_count_max"),
        ("enrichProfiles", "enrich_profiles"),
        ("liveFetch", "live_fetch"),
        ("networkProfileUrl", "network_profile_url", "url", "profile_url"),
        ("nextToken", "next_token"),
        ("pageSize", "page_size", "limit"),
    ),
}
_LISTS = frozenset({"select", "order", "columns", "on_conflict"})
"""Texts of names that a comma divides: a list of them can mean nothing else."""
_ORDERING = re.compile(r"([\w.()]+)\s+(asc|desc)\b", re.IGNORECASE)
_PLAIN = re.compile(r"[^.(){}]*")
"""Matches a value that cannot begin with an operator, since that ends with a point."""
_NUMBER = re.compile(r"-?\d{1,15}")


def read_spellings(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call by the tool's own names and forms. Raises BadRequest for one that is given under
    two names.
    """
    properties = tool.input_schema["properties"]
    values = _rename(tool, properties, arguments)
    for name, value in values.items():
        schema = properties.get(name)
        if schema is not None:
            values[name] = _read_value(name, schema, value)
    return values


def read_ids(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments with ids as the texts that the tool takes, also where a row has a number for an id."""
    properties = tool.input_schema.get("properties", {})
    return {
        name: _read_id(name, value)
        if type(value) is int and properties.get(name, {}).get("type") == "string"
        else value
        for name, value in arguments.items()
    }


def _rename(tool: Tool, properties: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    if arguments.keys() <= properties.keys():
        return dict(arguments)
    values: dict[str, Any] = {}
    for given_name, value in arguments.items():
        name = given_name if given_name in properties else find_argument(tool, properties, given_name)
        if values.get(name, value) != value or (name != given_name and arguments.get(name, value) != value):
            raise BadRequest(f"`{given_name}` and `{name}` are the same argument, and have different values.")
        values[name] = value
    return values


def find_argument(tool: Tool, properties: Collection[str], given_name: str) -> str:
    """Returns the argument that an unknown name means; the name itself if none or several could be meant."""
    groups = (*_OF_TOOLSETS.get(tool.toolset.name, ()), *_SAME)
    names = {name for group in groups if given_name in group for name in group if name in properties}
    return names.pop() if len(names) == 1 else given_name


def _read_value(name: str, schema: Mapping[str, Any], value: Any) -> Any:
    if name == "where" and isinstance(value, Mapping):
        return {column: _read_filter(column, condition) for column, condition in value.items()}
    if name in _LISTS and isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    if name == "order" and isinstance(value, str):
        return _ORDERING.sub(lambda match: f"{match[1]}.{match[2].lower()}", value)
    read = _READERS.get((str(schema.get("type")), type(value)))
    return value if read is None else read(name, value)


def _read_filter(column: str, condition: Any) -> Any:
    """Returns a condition on a column in the form `operator.value`; a bare value means that it is equal."""
    if column in ("or", "and", "not.or", "not.and"):
        return condition
    if condition is None or isinstance(condition, bool):
        return "is.null" if condition is None else f"is.{str(condition).lower()}"
    if isinstance(condition, list) and condition and all(type(item) is int for item in condition):
        return f"in.({','.join(map(str, condition))})"
    is_bare = isinstance(condition, int | float) or (isinstance(condition, str) and _PLAIN.fullmatch(condition))
    return f"eq.{condition}" if is_bare else condition


def _read_id(name: str, value: Any) -> Any:
    return str(value) if name == "id" or name.endswith("_id") else value


def _read_number(_name: str, value: Any) -> Any:
    return int(value) if _NUMBER.fullmatch(value) else value


def _read_truth(_name: str, value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value)


def _read_object(_name: str, value: Any) -> Any:
    json_value = _parse(value)
    return json_value if isinstance(json_value, dict) else value


def _read_list(_name: str, value: Any) -> Any:
    json_value = _parse(value)
    return json_value if isinstance(json_value, list) else value


def _parse(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return None


_READERS: Mapping[tuple[str, type], Callable[[str, Any], Any]] = {
    ("string", int): _read_id,
    ("integer", str): _read_number,
    ("boolean", str): _read_truth,
    ("object", str): _read_object,
    ("array", str): _read_list,
}
"""By the type that a schema names and the type that came, how a value in a nearby form is read."""
