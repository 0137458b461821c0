"""The callers that may call the tools of suggestions, and the arguments for it (tests/tools/access.py)."""

from tests.tools.access import ACCOUNTS, PUBLIC

POLICY = {
    "suggestions_create": ACCOUNTS,
    "suggestions_public_create": PUBLIC,
}
