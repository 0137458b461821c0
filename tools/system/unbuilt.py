"""What the contract has and this server has not yet. Who builds it takes its line away here and in docs/not-yet.md."""

from dataclasses import dataclass

from baobab.tools.core import BaobabError
from baobab.tools.core.envelopes import STRUCTURED, Envelope
from baobab.tools.system.errors import (
    NotBuilt,
    NotHere,
    SourceNotBuilt,
)


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """A feature that is missing. paths: where the contract has it; all that is below them belongs to it too.

    what: its name, as docs/not-yet.md has it. until_then: what to use instead; left out, the error's remedy.
    """

    what: str
    paths: tuple[str, ...]
    until_then: str = ""
    error: type[BaobabError] = NotBuilt
    envelope: Envelope = STRUCTURED

    def build_error(self, path: str) -> BaobabError:
        """Builds the answer to a request for a path below `paths`."""
        remedy = self.until_then or self.error.remediation
        app_id, name = (*path.split("/")[2:4], "")[:2]
        if f"{_APP}/{name}" in self.paths and name.isidentifier():
            # A table may have the name from before the name was taken.
            remedy += f" If you mean a table `{name}`, its rows are at /v1/{app_id}/data/{name}."
        messages: dict[type[BaobabError], str] = {
            NotBuilt: f"This path is not built yet: {self.what}.",
            NotHere: f"Not here: {self.what}.",
            SourceNotBuilt: "This server does not build sites from source.",
        }
        message = messages.get(self.error)
        return self.error(message, remediation=remedy)


_APP = "/v1/{app_id}"
UNBUILT = (
    Unbuilt("durable objects", (f"{_APP}/durable-objects", f"{_APP}/_do"), "Keep the state in tables or keys."),
    Unbuilt(
        "builds of sites from source",
        (f"{_APP}/frontend/deployments/from-source", f"{_APP}/repo/build-cache"),
        error=SourceNotBuilt,
    ),
    Unbuilt(
        "pages that are rendered at the edge",
        (f"{_APP}/edge-ssr",),
        "Render the pages when you build them, and deploy them with op:sites_create.",
    ),
    Unbuilt("staging and previews", ("/v1/apps/{app_id}/staging",), "Create a second app with op:apps_init."),
    Unbuilt(
        "payments",
        (
            f"{_APP}/billing",
            "/dashboard/billing/checkout",
            "/dashboard/billing/portal",
            "/dashboard/billing/topup",
            "/dashboard/billing/spending-cap",
            "/v1/users/me/auto-refill",
        ),
        "The operator gives credits and plans with `baobab credits` and `baobab plan`.",
    ),
)
