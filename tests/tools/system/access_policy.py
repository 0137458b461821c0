"""The callers that may call the tools of system, and the arguments for it (tests/tools/access.py)."""

from tests.tools.access import PUBLIC

POLICY = {
    "system_health": PUBLIC,
    "system_ready": PUBLIC,
    "system_regions": PUBLIC,
    "system_llms_full_txt": PUBLIC,
    "system_llms_txt": PUBLIC,
    "docs_read": PUBLIC,
    # None of them is the account that the installation began with.
    "system_settings": "401 " + " ".join(["403"] * 13),
    "system_installation": "401 " + " ".join(["403"] * 13),
    "system_go_live": "401 " + " ".join(["403"] * 13),
}
