"""Who may call the tools of suggestions, and with which arguments (tests/tools/access.py)."""

from tests.tools.access import ACCOUNTS, PUBLIC

POLICY = {
    "suggestions_create": ACCOUNTS,
    "suggestions_public_create": PUBLIC,
}
