"""Looks up what policies may ask of a user beside the id: the role, the address, and whether it is verified."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from baobab.tools.core import Services
from baobab.tools.core.auth.user_sessions import UserAddress
from baobab.tools.data.actor import Actor
from baobab.tools.data.schema.catalogue import Catalogue


async def add_claims(services: Services, app_id: str, catalogue: Catalogue, actor: Actor) -> Actor:
    """Returns a user with the role, and with the claims if a policy or a view of the app asks for them."""
    return (await add_claims_of_all(services, app_id, catalogue, [actor]))[0]


async def add_claims_of_all(
    services: Services, app_id: str, catalogue: Catalogue, actors: Sequence[Actor]
) -> list[Actor]:
    """Returns users in the same order: with their roles, and with their claims if a policy or view of the app asks for
    them.

    They are those of this moment, and not those of a token. An address that is not verified counts as none, because
    anybody can sign up with the address of somebody else.
    """
    asks_claims = _asks_claims(catalogue)
    user_ids = [
        actor.user_id
        for actor in actors
        if actor.user_id is not None and (actor.user_role is None or (asks_claims and actor.claims is None))
    ]
    if not user_ids:
        return list(actors)
    addresses = await services.credentials.find_addresses(app_id, user_ids)
    return [
        _complete(actor, addresses.get(actor.user_id), asks_claims=asks_claims) if actor.user_id in user_ids else actor
        for actor in actors
    ]


def _complete(actor: Actor, address: UserAddress | None, *, asks_claims: bool) -> Actor:
    role = actor.user_role or ("user" if address is None else address.role)
    claims = _list_claims(address) if asks_claims and actor.claims is None else actor.claims
    return replace(actor, user_role=role, claims=claims, is_unknown=address is None)


def _list_claims(address: UserAddress | None) -> tuple[tuple[str, str | None], ...]:
    if address is None:
        return ()
    email = address.email if address.is_verified else None
    return (
        ("email", email),
        ("email_verified", _write(email is not None)),
        ("is_anonymous", _write(address.email is None)),
    )


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
