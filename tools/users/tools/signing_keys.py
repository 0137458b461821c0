"""The keys that sign the access tokens of an app's users."""

from baobab.tools.core import EVERYBODY, AppId, AppOwner, Audit, Call, Guard, PerAddress, Rest
from baobab.tools.users.schemas import PublicKeys, RotatedKeys
from baobab.tools.users.toolset import auth, users


@auth.tool(
    "GET /.well-known/jwks.json",
    access=EVERYBODY,
    effect="read",
    limit=PerAddress(300, 60, per_app=True),
    rest=Rest(headers={"cache-control": "public, max-age=300"}),
)
async def auth_jwks(call: Call, app_id: AppId) -> PublicKeys:
    """Read the public keys that verify the access tokens of an app's users (JWKS). They may be cached for five minutes.

    A token is valid if one of these keys has signed it with RS256, its `iss` is `baobab:app:` and the app's id, its
    `app_id` is the app's and its `exp` has not passed.
    """
    return {"keys": await call.services.signers.public_keys(app_id)}


@users.tool(
    "POST /auth/rotate-keys",
    access=AppOwner("admin"),
    effect="destructive",
    audit=Audit("auth.keys.rotate", resource="app"),
    guard=Guard(outcome=lambda _: "Replace the key that signs the tokens of the app's users"),
)
async def users_rotate_keys(call: Call, app_id: AppId) -> RotatedKeys:
    """Make a new key pair that signs the tokens of an app's users from now on.

    Tokens of the key before it stay valid until they expire; both keys are published for 24 hours.
    """
    signers = call.services.signers
    before = await signers.public_keys(app_id)
    public = await signers.rotate(call.unit, app_id)
    await call.services.notices.publish(call.unit, "app", app_id)
    call.audit.resource_id = app_id
    return {"kid": str(public["kid"]), "keys": [public, *before]}
