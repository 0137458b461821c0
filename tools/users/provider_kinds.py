"""The OAuth providers: the eight built-in ones with their addresses, and the differences between their answers."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from baobab.tools.core import Email

_EMAIL: TypeAdapter[str] = TypeAdapter(Email)
Profile = Literal["oidc", "github", "discord", "facebook", "microsoft", "x"]
"""The format of a provider's answer about a user: which field has what, and which of them can be relied on."""


@dataclass(frozen=True, slots=True)
class ProviderKind:
    """A provider, built in or made from an app's settings.

    issuers, jwks_url: of providers whose ID token says who the user is; else `userinfo_url` is asked.
    pkce: whether it takes a code challenge. form_post: whether it answers with a form instead of a query.
    basic: whether the client's secret goes into the Authorization header instead of the form.
    """

    slug: str
    authorization_url: str
    token_url: str
    userinfo_url: str | None
    scopes: tuple[str, ...]
    profile: Profile = "oidc"
    issuers: tuple[str, ...] = ()
    jwks_url: str | None = None
    pkce: bool = True
    form_post: bool = False
    basic: bool = False


BUILT_IN = {
    kind.slug: kind
    for kind in (
        ProviderKind(
            "google",
            "https://accounts.google.com/o/oauth2/v2/auth",
            "https://oauth2.googleapis.com/token",
            None,
            ("openid", "email", "profile"),
            issuers=("https://accounts.google.com", "accounts.google.com"),
            jwks_url="https://www.googleapis.com/oauth2/v3/certs",
        ),
        ProviderKind(
            "github",
            "https://github.com/login/oauth/authorize",
            "https://github.com/login/oauth/access_token",
            "https://api.github.com/user",
            ("user:email",),
            profile="github",
        ),
        ProviderKind(
            "discord",
            "https://discord.com/oauth2/authorize",
            "https://discord.com/api/oauth2/token",
            "https://discord.com/api/users/@me",
            ("identify", "email"),
            profile="discord",
        ),
        ProviderKind(
            "facebook",
            "https://www.facebook.com/v21.0/dialog/oauth",
            "https://graph.facebook.com/v21.0/oauth/access_token",
            "https://graph.facebook.com/v21.0/me?fields=id,name,email,picture",
            ("email", "public_profile"),
            profile="facebook",
        ),
        ProviderKind(
            "linkedin",
            "https://www.linkedin.com/oauth/v2/authorization",
            "https://www.linkedin.com/oauth/v2/accessToken",
            None,
            ("openid", "profile", "email"),
            issuers=("https://www.linkedin.com/oauth", "https://www.linkedin.com"),
            jwks_url="https://www.linkedin.com/oauth/openid/jwks",
            pkce=False,
        ),
        ProviderKind(
            "microsoft",
            "https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
            "https://login.microsoftonline.com/common/oauth2/v2.0/token",
            "https://graph.microsoft.com/v1.0/me",
            ("openid", "email", "profile", "User.Read"),
            profile="microsoft",
        ),
        ProviderKind(
            "apple",
            "https://appleid.apple.com/auth/authorize",
            "https://appleid.apple.com/auth/token",
            None,
            ("name", "email"),
            issuers=("https://appleid.apple.com",),
            jwks_url="https://appleid.apple.com/auth/keys",
            form_post=True,
        ),
        ProviderKind(
            "x",
            "https://x.com/i/oauth2/authorize",
            "https://api.x.com/2/oauth2/token",
            "https://api.x.com/2/users/me?user.fields=profile_image_url",
            ("tweet.read", "users.read"),
            profile="x",
            basic=True,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class ProviderUser:
    """The person who signed in, as a provider reports them. email: None if the provider reports none."""

    uid: str
    email: str | None
    email_verified: bool
    name: str
    avatar_url: str | None = None


def read_profile(profile: Profile, data: dict[str, Any]) -> ProviderUser:
    """Reads what a provider says of a user. Raises ValueError if it does not say who it is.

    Only what a provider vouches for counts as verified: Facebook and Microsoft tell addresses that nobody need own.
    """
    if profile == "x":
        inner = data.get("data")
        data = inner if isinstance(inner, dict) else {}
    uid = data.get("sub") if profile == "oidc" else data.get("id")
    if profile == "oidc" and uid is None:
        uid = data.get("id")
    if not isinstance(uid, str | int) or isinstance(uid, bool) or uid == "":
        raise ValueError("the provider does not say who the user is")
    match profile:
        case "oidc":
            is_verified = data.get("email_verified") in (True, "true")
            return _build(uid, data.get("email"), data.get("name"), data.get("picture"), is_verified=is_verified)
        case "github":
            return _build(uid, data.get("email"), data.get("name") or data.get("login"), data.get("avatar_url"))
        case "discord":
            is_verified = data.get("verified") is True
            return _build(
                uid, data.get("email"), data.get("global_name") or data.get("username"), is_verified=is_verified
            )
        case "facebook":
            return _build(uid, data.get("email"), data.get("name"))
        case "microsoft":
            email = data.get("mail") or data.get("userPrincipalName")
            return _build(uid, email, data.get("displayName"))
        case "x":
            handle = data.get("username") if isinstance(data.get("username"), str) else uid
            synthetic = f"{handle}@users.noreply.x.local"
            return _build(uid, synthetic, data.get("name"), data.get("profile_image_url"))


def _build(uid: str | int, email: Any, name: Any, avatar: Any = None, *, is_verified: bool = False) -> ProviderUser:
    address = _read_address(email)
    display_name = "".join(c for c in name if c.isprintable())[:200] if isinstance(name, str) else ""
    picture = avatar if isinstance(avatar, str) and avatar.startswith("https://") and len(avatar) <= 2000 else None
    return ProviderUser(str(uid)[:250], address, is_verified and address is not None, display_name, picture)


def _read_address(email: Any) -> str | None:
    """Returns an address in the spelling that it has everywhere else; None for what is not an address."""
    try:
        return _EMAIL.validate_python(email.strip()) if isinstance(email, str) else None
    except ValidationError:
        return None
