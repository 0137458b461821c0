"""The parameters that the tools for rows share, and the errors that they raise."""

from typing import Annotated

from pydantic import Field, WithJsonSchema

from baobab.tools.core import Audit, JsonObject, NotSecret, Text
from baobab.tools.data.errors import (
    AnswerTooLarge,
    CheckViolation,
    ColumnNotFound,
    IdempotencyKeyReused,
    InvalidFilter,
    PolicyViolation,
    QueryRefused,
    QueryTimeout,
    SchemaChanging,
    SchemaNotFound,
    TableNotFound,
    TablesBusy,
    TablesFull,
    UniqueViolation,
    UserRequired,
    ViewReadOnly,
    Violation,
)

MOST_ROWS = 1000
UNDO = "data_undo"
UNDOABLE = "It deletes rows. data_undo can bring them back within the days of undo."
"""What people read who are asked to approve it."""
READ_ERRORS = (
    TableNotFound,
    ColumnNotFound,
    InvalidFilter,
    UserRequired,
    QueryTimeout,
    QueryRefused,
    AnswerTooLarge,
    SchemaNotFound,
    SchemaChanging,
)
WRITE_ERRORS = (
    *READ_ERRORS,
    ViewReadOnly,
    PolicyViolation,
    Violation,
    CheckViolation,
    UniqueViolation,
    TablesFull,
    TablesBusy,
    IdempotencyKeyReused,
)
AS_HEADERS = {"as_role": "x-platform-as-role", "as_user": "x-platform-as-user"}
ANSWER_HEADERS = {**AS_HEADERS, "prefer": "prefer", "media_type": "accept"}
"""The request headers that are arguments of the tools that answer several rows."""
KEY_HEADER = {"idempotency_key": "idempotency-key"}
"""The request header that carries the idempotency key of a write."""
WRITTEN = Audit("data.write", category="data", resource="table", tallied=True)

TableName = Annotated[str, Text(63, min_length=1), Field(description="The table.", examples=["posts"])]
RowId = Annotated[str, Text(1000, min_length=1), Field(description="The row's primary key.", examples=["17"])]
FilterText = Annotated[str, Text(10_000)]
Filters = Annotated[
    dict[Annotated[str, Text(200)], FilterText | Annotated[list[FilterText], Field(max_length=50)]],
    Field(max_length=100, examples=[{"status": "eq.open", "or": "(price.lt.10,name.ilike.*sale*)"}]),
]
SelectText = Annotated[str, Text(10_000), Field(examples=["id,title,author(name)"])]
OrderText = Annotated[str, Text(100_000), Field(examples=["created_at.desc,id"])]
Limit = Annotated[int, Field(ge=0, le=1000)]
Offset = Annotated[int, Field(ge=0, le=10_000_000)]
Prefer = Annotated[str, Text(500), Field(examples=["count=exact"])]
MediaType = Annotated[str, Text(500)]
IdempotencyKey = Annotated[
    str,
    Text(200, min_length=1),
    NotSecret("a name of the caller's own"),
    Field(description="A text of your own. Calls that repeat it within 7 days run once, with one answer."),
]
OneOrMore = Annotated[
    JsonObject | Annotated[list[JsonObject], Field(max_length=MOST_ROWS)],
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "object"},
                {"type": "array", "items": {"type": "object"}, "maxItems": MOST_ROWS},
            ]
        }
    ),
]
