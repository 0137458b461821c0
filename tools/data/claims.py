"""Looks up what policies may ask of a user beside the id and the role: the address, and whether it is verified."""

from dataclasses import replace
from typing import Any

from baobab.tools.core.services import Services
from baobab.tools.data.actor import Actor
from baobab.tools.data.catalogue import Catalogue


async def add_claims(services: Services, app_id: str, catalogue: Catalogue, actor: Actor) -> Actor:
    """Returns a user with the claims, if a policy or a view of the app asks for them.

    They are those of this moment, and not those of a token. An address that is not verified counts as none, because
    anybody can sign up with the address of somebody else.
    """
    if actor.role != "user" or actor.user_id is None or actor.claims is not None or not _asks_claims(catalogue):
        return actor
    address = await services.credentials.find_address(app_id, actor.user_id)
    if address is None:
        return replace(actor, claims=())
    email = address.email if address.is_verified else None
    claims = (
        ("email", email),
        ("email_verified", _write(email is not None)),
        ("is_anonymous", _write(address.email is None)),
    )
    return replace(actor, claims=claims)


def _write(value: bool) -> str:
    return "true" if value else "false"


def _asks_claims(catalogue: Catalogue) -> bool:
    if "asks_claims" not in catalogue.memory:
        trees = [
            tree
            for table in catalogue.tables.values()
            for policy in table.policies.values()
            for tree in (policy.using_tree, policy.check_tree)
        ]
        catalogue.memory["asks_claims"] = _names_claim([*trees, *(view.query for view in catalogue.views.values())])
    return bool(catalogue.memory["asks_claims"])


def _names_claim(tree: Any) -> bool:
    match tree:
        case ["claim", str()]:
            return True
        case list():
            return any(map(_names_claim, tree))
        case dict():
            return any(map(_names_claim, tree.values()))
    return False
