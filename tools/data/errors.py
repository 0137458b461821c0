"""The errors of an app's tables."""

from baobab.tools.core import BadRequest, BaobabError, Conflict, Forbidden, NotFound, Unauthenticated, Unavailable

INSTEAD_OF_RPC = (
    "There are no functions of the database (`rpc`): read a view that op:schema_apply declares, write to several "
    "tables at once with op:data_batch, and insert rows at the table's own address with op:data_insert."
)
INSTEAD_OF_POST_TO_A_ROW = (
    f"Correct the path, which reads as a row of a table, or use a method that the Allow header names. {INSTEAD_OF_RPC}"
)
INSTEAD_OF_FILTERING_A_ROW = (
    f"This path reads one row by its key; op:data_list reads rows by other columns. {INSTEAD_OF_RPC}"
)


class TableNotFound(NotFound):
    code = "VALIDATION_TABLE_NOT_FOUND"
    summary = "The app has no table with this name."
    remediation = "Create it with op:schema_apply, or correct the name; op:schema_get lists the tables."


class UnknownTable(BadRequest):
    code = "VALIDATION_TABLE_NOT_FOUND"
    summary = "The app has no table with this name."
    remediation = "Create it with op:schema_apply, or correct the name; op:schema_get lists the tables."


class ColumnNotFound(BadRequest):
    code = "VALIDATION_COLUMN_NOT_FOUND"
    summary = "The table has no column with this name."
    remediation = "Use one of details.columns."


class InvalidSchema(BadRequest):
    code = "VALIDATION_INVALID_SCHEMA"
    summary = "The schema is not valid."
    remediation = "Correct what the message names; docs/data.md shows a whole schema."


class InvalidName(BadRequest):
    code = "VALIDATION_INVALID_NAME"
    summary = "This is not a name for a table, column, index or policy."
    remediation = "Use lower-case letters, digits and underscores, beginning with a letter: `order_items`."


class ReservedTable(BadRequest):
    code = "VALIDATION_RESERVED_TABLE"
    summary = "The name of the table is reserved, as are all that begin with `_`."
    remediation = "Choose a name that begins with a letter."


class InvalidFilter(BadRequest):
    code = "VALIDATION_INVALID_SCHEMA"
    summary = "A filter names an unknown column or operator."
    remediation = "Write `column=operator.value`; details.invalidFilters names what is wrong."


class ActionNotFound(NotFound):
    code = "UNDO_NOT_FOUND"
    summary = "There is no such write, or it is too old to be undone."
    remediation = "op:data_changes lists what was written and can be undone."


class UndoConflict(Conflict):
    code = "UNDO_CONFLICT"
    summary = "Undoing this would lose a later write to the same rows."
    remediation = (
        "op:data_changes shows what the later actions wrote. If that is to go too, undo them first, or give `cascade: "
        "true`."
    )


class UndoImpossible(Conflict):
    code = "UNDO_IMPOSSIBLE"
    summary = "The rows cannot be restored: their earlier values are not stored, or their table has changed."
    remediation = "Write the rows again with the values that they should have."


class RealtimeNotConfigured(BadRequest):
    code = "REALTIME_NOT_CONFIGURED"
    summary = "Live changes are not turned on for this table."
    remediation = "Turn them on with op:realtime_configure."


class ViewNotFollowed(BadRequest):
    code = "REALTIME_VIEW"
    summary = "A view has no live changes."
    remediation = "Follow the tables that the view reads, and read the view again when they change."


class RealtimeConnectionLimit(BaobabError):
    code = "REALTIME_CONNECTION_LIMIT"
    status = 429
    summary = "The app has reached its limit of open connections for live changes."
    remediation = "Close one, or come back later."


class TooManyPresent(Conflict):
    code = "REALTIME_PRESENCE_LIMIT"
    summary = "As many clients are present in the app as may be."
    remediation = "Come back when some have left; changes and broadcasts can be followed without being present."


class Violation(BadRequest):
    """A row breaks a rule of its table."""

    code = "VALIDATION_CONSTRAINT_VIOLATION"
    sqlstate = "23000"
    summary = "The row breaks a constraint of its table."
    remediation = "Correct the value; op:schema_get shows the constraints."


class CheckViolation(Violation):
    code = "VALIDATION_CHECK_VIOLATION"
    sqlstate = "23514"
    summary = "The row breaks a check of its table, or a generated value does not fit its column."
    remediation = "Give the columns of details.columns values that fulfil details.expression."


class NotNullViolation(Violation):
    code = "VALIDATION_NOT_NULL_VIOLATION"
    sqlstate = "23502"
    summary = "A column that must have a value has none."
    remediation = "Give details.column a value."


class ForeignKeyViolation(Violation):
    code = "VALIDATION_FOREIGN_KEY_VIOLATION"
    sqlstate = "23503"
    summary = "A reference would break: the row refers to one that does not exist, or other rows refer to it."
    remediation = (
        "Insert the row that it refers to first. A row that others refer to stays: change those rows first, so that "
        "they refer to another one or to none."
    )


class UniqueViolation(Conflict):
    code = "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION"
    sqlstate = "23505"
    summary = "Another row has this value already, and it must be unique."
    remediation = (
        "Choose another value, or update the row that has it: op:data_insert does if its `on_conflict` names the "
        "unique columns."
    )


class SchemaChanging(Unavailable):
    code = "SCHEMA_CHANGING"
    summary = "The app's schema is being changed, and the tables cannot be read until that is done."
    remediation = "Send the same request again after the seconds of `Retry-After`."


class TablesBusy(Unavailable):
    code = "DATA_BUSY"
    summary = "Something else holds the app's tables for longer than this call may wait, so it has changed nothing."
    remediation = (
        "Send the same call again after the seconds of `Retry-After`. If a change of the schema is refused like this, "
        "slow reads of the table hold it: op:rls_list lists `slow_statements`."
    )


class TableLimit(BaobabError):
    code = "QUOTA_TABLE_LIMIT"
    status = 402
    summary = "An app has at most 50 tables."
    remediation = "Put the rows into a table that there is, with a column that tells them apart."


class TablesFull(BaobabError):
    code = "QUOTA_STORAGE_EXCEEDED"
    status = 402
    summary = "The app's plan has no storage left for these rows."
    remediation = (
        "Ask the operator for another plan (`baobab plan`). Delete rows only if whoever runs the app says which."
    )


class ViewReadOnly(BadRequest):
    code = "DATA_VIEW_READ_ONLY"
    summary = "A view cannot be written, because it shows the rows of tables."
    remediation = "Write the tables that the view reads; op:schema_get shows its query."


class WrittenByUsers(Conflict):
    code = "DATA_WRITTEN_BY_USERS"
    summary = "Users or visitors may write rows of this table, so its texts are not the app's own."
    remediation = "Mark a table that only you write, or close this one for users first: op:rls_list shows its policies."


class AnswerTooLarge(BaobabError):
    code = "DATA_ANSWER_TOO_LARGE"
    status = 413
    summary = "The rows are too large for one answer."
    remediation = "Name fewer columns in `select`, or ask for fewer rows with `limit` and `offset`."


class DestructiveChange(BadRequest):
    code = "SCHEMA_DESTRUCTIVE_CHANGE"
    summary = "The new schema would drop or change columns or tables that hold data."
    remediation = (
        "Describe what is missing too, as op:schema_get answers it, or send only what changes with `mode: merge`. "
        "details.changes says for each change how to make it on purpose."
    )


class MigrationFailed(BadRequest):
    code = "SCHEMA_MIGRATION_FAILED"
    summary = "The present rows do not fit the new schema. Nothing was changed."
    remediation = "Correct the rows first (details say which), or give the column a default."


class UnexpectedCount(Conflict):
    code = "DATA_UNEXPECTED_COUNT"
    summary = "The write matched a number of rows other than `expect`, so nothing was written."
    remediation = "Read the rows again and decide again: somebody may have changed them."


class IdempotencyKeyReused(Conflict):
    code = "IDEMPOTENCY_KEY_REUSED"
    summary = "This idempotency key was used for a different call."
    remediation = "Use a new key for each call that should have its own effect."


class ImportStopped(BadRequest):
    code = "DATA_IMPORT_STOPPED"
    summary = "A line of the import cannot be written. The lines before it were written, and none from it on."
    remediation = (
        "Correct the line. If you sent an `Idempotency-Key`, send the whole file again with it: the import continues "
        "at this line. Otherwise send only the lines after `details.import.last_line`."
    )


class ImportOvertaken(Conflict):
    code = "DATA_IMPORT_OVERTAKEN"
    summary = "Another call is importing a file with the same `Idempotency-Key`."
    remediation = "Wait until it has ended, then send the file again with the same key. No line is written twice."


class ImportNotText(BadRequest):
    code = "DATA_IMPORT_NOT_TEXT"
    summary = "This call needs a person's approval, and a streamed file cannot wait for it."
    remediation = "Import it over MCP as a text of at most 1 MB, or use a key that needs no approval for this tool."


class TooManyExports(BaobabError):
    code = "DATA_EXPORT_LIMIT"
    status = 429
    summary = "The app has reached its limit of exports that run at the same time."
    remediation = "Wait until one has ended."


class RowNotFound(NotFound):
    summary = "The table has no row with this key, or none that this caller may see."
    remediation = "Check the key; list the rows that you may see."


class SingleRowExpected(BaobabError):
    code = "PGRST116"
    status = 406
    summary = "The request asks for exactly one row, but another number of rows matches."
    remediation = "Narrow the filter, or ask for a list."


class MediaTypeRefused(BaobabError):
    code = "PGRST107"
    status = 406
    summary = "Rows are not answered in the form that the request accepts."
    remediation = (
        "Accept `application/json`, `application/vnd.pgrst.object+json`, either with `nulls=stripped`, or `text/csv`; "
        "of a read also `application/vnd.pgrst.plan+json`."
    )


class SchemaNotFound(BaobabError):
    code = "PGRST106"
    status = 406
    summary = "The request names a schema of the database, and an app has one, which is called `public`."
    remediation = "Leave out the headers Accept-Profile and Content-Profile, or write `public`."


class UserRequired(Unauthenticated):
    code = "AUTH_RLS_REQUIRES_USER_JWT"
    sqlstate = "42501"
    summary = "No policy of this table lets visitors do this without signing in."
    remediation = "Send a token of one of the app's users, or let the app's developer add a policy for the role `anon`."


class PolicyViolation(Forbidden):
    code = "AUTH_RLS_POLICY_VIOLATION"
    sqlstate = "42501"
    summary = "The table's policies do not allow this row."
    remediation = (
        "Write a row that the policies allow, such as one of the user's own; whoever runs the app lists them with "
        "op:rls_list."
    )


class UnsafeExpression(BadRequest):
    code = "RLS_UNSAFE_EXPRESSION"
    summary = "The expression contains something that policies do not allow."
    remediation = (
        "Use columns, values, comparisons, `and`, `or`, `not`, current_user_id() and subqueries on the app's tables."
    )


class MismatchedTypes(BadRequest):
    code = "RLS_TYPE_MISMATCH"
    summary = "The expression compares values of different types."
    remediation = "Compare values of one type, or cast one: `owner::text = current_user_id()`."


class InvalidExpression(BadRequest):
    code = "RLS_INVALID_EXPRESSION"
    summary = "The expression cannot be evaluated on this table."
    remediation = "Correct what the message names."


class QueryTimeout(BaobabError):
    code = "QUERY_TIMEOUT"
    status = 504
    summary = "The query took too long, and was stopped."
    remediation = "Ask for less: filter by a column that has an index, or add one with op:schema_apply."


class QueryRefused(BadRequest):
    code = "QUERY_TOO_COMPLEX"
    summary = "The database does not run this query: it is too large, or cannot compute a value in it."
    remediation = "Ask for less at a time: fewer conditions, columns, orders or related tables."


class PolicyNotFound(NotFound):
    summary = "The table has no policy with this name."
    remediation = "List the policies with op:rls_list."


class SqlInvalid(BadRequest):
    code = "SQL_INVALID"
    summary = "The statement is not one that can be run: a name, a type or its form is wrong."
    remediation = "Correct what the message names. Write one statement, with `$1` for each value of `params`."


class SqlNotAllowed(BadRequest):
    code = "SQL_NOT_ALLOWED"
    summary = "The statement uses something that an app's SQL may not use."
    remediation = (
        "Write SELECT, INSERT, UPDATE or DELETE on the app's own tables, with the functions that docs/data.md lists."
    )


class SqlTooLarge(BaobabError):
    code = "SQL_TOO_LARGE"
    status = 413
    summary = "The statement answers or changes more than one call may. Nothing was answered, and nothing changed."
    remediation = "Ask for less at a time: add LIMIT, name fewer columns, or narrow the condition."


class SqlNotOffered(BadRequest):
    code = "SQL_NOT_OFFERED"
    summary = "This installation runs no SQL of apps: its database has no role that would confine it."
    remediation = (
        "Read and write through the tools for rows, or let the operator give the database's user the right to create "
        "roles (docs/data.md)."
    )
