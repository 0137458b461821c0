"""The results of sign-in and of the administration of users."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import Email, Secret, Text
from baobab.tools.users.fields import DisplayName, RoleName


class UserProfile(TypedDict):
    """A user, as the token response shows it."""

    id: str
    email: Annotated[str | None, Field(description="Null for an anonymous user.")]
    email_verified: bool
    display_name: str
    avatar_url: str | None


class Profile(UserProfile):
    """A user's own record."""

    provider: Annotated[
        str, Field(description="How the user came: `email`, `magic_link`, `anonymous` or an OAuth provider.")
    ]
    role: str
    created_at: datetime
    last_sign_in_at: datetime | None


class NewUser(TypedDict):
    id: str
    email: str
    email_verified: bool
    display_name: str


class SignedUp(TypedDict):
    """A new user, who has no tokens yet."""

    user: NewUser
    message: str


class Tokens(TypedDict):
    """A fresh pair of tokens."""

    access_token: Annotated[str, Field(description="JWT for `Authorization: Bearer`.")]
    refresh_token: Annotated[str, Field(description="Good for one exchange.")]
    expires_in: Annotated[int, Field(description="Lifetime of `access_token` in seconds.")]
    token_type: Literal["Bearer"]


class SignedIn(Tokens):
    """Tokens and whose they are."""

    user: UserProfile


FactorMethod = Literal["totp", "recovery_code", "passkey"]


class Challenged(TypedDict):
    """In place of tokens: the sign-in goes on with the second factor."""

    challenge: Annotated[str, Field(description="For op:auth_second_factor, once, within ten minutes.")]
    methods: Annotated[list[FactorMethod], Field(description="What the user can answer with.")]
    enrol: Annotated[
        bool,
        Field(
            description="Whether the user has nothing set up and begins with op:auth_totp_enrol: the app requires it."
        ),
    ]
    expires_in: Annotated[int, Field(description="Seconds.")]


class SecondFactor(TypedDict):
    """The second factors that a user has set up beside a password or a mailed code."""

    totp: Annotated[bool, Field(description="Whether sign-ins ask for a code of an authenticator app.")]
    recovery_codes: Annotated[int, Field(description="How many of them are unused.")]
    passkeys: int
    required: Annotated[bool, Field(description="Whether the app requires a second factor of everybody.")]


class TotpSecret(TypedDict):
    """The secret for an authenticator app, shown once."""

    secret: Annotated[str, Field(description="In base32, for those who type it.")]
    uri: Annotated[str, Field(description="The `otpauth:` address; show it as a QR code.")]


class RecoveryCodes(TypedDict):
    """Each is good once in place of a code of the app. They are shown now and never again."""

    recovery_codes: list[str]


class TotpConfirmed(RecoveryCodes):
    signed_in: Annotated[
        SignedIn | None, Field(description="The tokens, where the code has finished a sign-in; otherwise null.")
    ]


class Passkey(TypedDict):
    """A passkey of a user. Its private half is in the user's device, or in the account of its maker."""

    id: str
    name: str
    rp_id: Annotated[str, Field(description="The host name whose pages it is good for.")]
    backed_up: Annotated[bool, Field(description="Whether it is copied to the user's other devices.")]
    created_at: datetime
    last_used_at: datetime | None


class PasskeyAdded(Passkey):
    signed_in: Annotated[
        SignedIn | None, Field(description="The tokens, where the passkey has finished a sign-in; otherwise null.")
    ]


class Passkeys(TypedDict):
    """The newest first."""

    passkeys: list[Passkey]


class PasskeyCeremony(TypedDict):
    """The options for the browser, and the id to send back with its answer."""

    options: Annotated[
        dict[str, Any],
        Field(description="For `PublicKeyCredential.parseCreationOptionsFromJSON` or `parseRequestOptionsFromJSON`."),
    ]
    state: Annotated[str, Field(description="Send it with the answer, within five minutes.")]


class PasskeyDeleted(TypedDict):
    deleted: Literal[True]
    id: str


class ResetFactors(TypedDict):
    """The second factors that were removed."""

    totp: bool
    passkeys: int


class Message(TypedDict):
    message: str


class PublicKeys(TypedDict):
    """The keys that verify access tokens (RFC 7517)."""

    keys: list[dict[str, Any]]


class Session(TypedDict):
    """A device or browser in which a user is signed in."""

    id: str
    method: Annotated[
        str, Field(description="How the user signed in: `email`, `magic_link`, `anonymous` or an OAuth provider.")
    ]
    ip_address: Annotated[str | None, Field(description="The address of the sign-in; of IPv6 its /64.")]
    user_agent: str | None
    client_name: Annotated[
        str | None, Field(description="What the MCP client calls itself, if it is the session of one.")
    ]
    created_at: datetime
    refreshed_at: datetime
    expires_at: Annotated[datetime, Field(description="When it ends unless its refresh token is exchanged before.")]
    current: Annotated[bool, Field(description="Whether it is the session of the token that asks.")]


class Sessions(TypedDict):
    """The most recently used first."""

    sessions: list[Session]


class OfferedTool(TypedDict):
    """A tool that a client may call as the user."""

    name: str
    title: str
    effect: str


class McpRequest(TypedDict):
    """An MCP client's request to a user of the app."""

    client_id: str
    client_name: Annotated[str, Field(description="What the client calls itself; nobody has checked that.")]
    client_document: Annotated[bool, Field(description="Whether the client's id is the address of its own document.")]
    redirect_host: Annotated[str, Field(description="Where access goes: a host, or the scheme of a local program.")]
    redirect_uri: str
    app_name: str
    tools: Annotated[list[OfferedTool], Field(description="The tools that it may call as the user.")]
    expires_at: datetime


class Decided(TypedDict):
    """Where to send the browser now."""

    redirect_to: str


class PendingMcpCode(TypedDict):
    """The request that a code is bound to."""

    redirect_uri: str
    redirect_given: bool
    code_challenge: str
    resource: str
    scopes: list[str]
    expires_at: datetime


class McpTokens(TypedDict):
    """The tokens of an MCP client; none where a code was used before, which ends the session of its first use."""

    access_token: str | None
    refresh_token: str | None
    expires_in: int
    scope: str


class Revoked(TypedDict):
    revoked: bool


class EndedSessions(TypedDict):
    ended: int


class ListedUser(TypedDict):
    id: str
    email: Annotated[str | None, Field(description="Null for an anonymous user.")]
    email_verified: bool
    display_name: str
    avatar_url: str | None
    provider: str
    provider_uid: str | None
    role: str
    banned_at: datetime | None
    ban_reason: str | None
    last_sign_in_at: datetime | None
    created_at: datetime


class Users(TypedDict):
    """The newest first."""

    users: list[ListedUser]
    next_cursor: str | None


class OneUser(TypedDict):
    user: ListedUser


class UserWithFactors(OneUser):
    second_factor: SecondFactor


class DeletedUser(TypedDict):
    deleted: Literal[True]
    user_id: str
    email: str | None


class RotatedKeys(TypedDict):
    """The keys of an app's tokens after a rotation, newest first."""

    kid: Annotated[str, Field(description="The key that signs from now on.")]
    keys: list[dict[str, Any]]


class Provider(TypedDict):
    """An OAuth provider of an app; its secret is never shown."""

    id: str
    app_id: str
    provider: str
    client_id: str
    callback_url: Annotated[str, Field(description="The address to register with the provider.")]
    redirect_uris: list[str]
    scopes: list[str]
    authorization_url: str | None
    token_url: str | None
    userinfo_url: str | None
    enabled: bool
    provider_metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class ProviderSaved(TypedDict):
    message: str
    config: Provider


class OneProvider(TypedDict):
    config: Provider


class Providers(TypedDict):
    configs: list[Provider]


class ProviderDeleted(TypedDict):
    message: str
    provider: str


class SignInSettings(TypedDict):
    """How users get into an app."""

    anonymous: Annotated[bool, Field(description="Whether anybody may sign in without an address.")]
    anonymous_days: Annotated[
        int | None, Field(description="After how many days without use an anonymous user is deleted; null: never.")
    ]

    invite_only: Annotated[bool, Field(description="Whether only invited people become users.")]
    second_factor: Annotated[
        Literal["optional", "required"],
        Field(description="Whether only those are asked for a second factor who have set one up, or everybody."),
    ]
    logo_url: Annotated[str | None, Field(description="A picture on the page on which users sign in.")]
    colour: Annotated[str | None, Field(description="Of the buttons there, such as `#1d4ed8`; null: blue.")]


class OneSignInSettings(TypedDict):
    settings: SignInSettings


class UpgradeTicket(TypedDict):
    """The ticket with which an OAuth flow begins that keeps the anonymous user."""

    upgrade: Annotated[
        str, Field(description="For `upgrade` of `GET /auth/{app_id}/oauth/{provider}`, within ten minutes.")
    ]


class Invitation(TypedDict):
    """An invitation to an app; whoever accepts it gets its role."""

    id: str
    email: str
    role: str
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None


class OneInvitation(TypedDict):
    invitation: Invitation


class Invitations(TypedDict):
    """The newest first."""

    invitations: list[Invitation]


class RevokedInvitation(TypedDict):
    revoked: Literal[True]
    invitation_id: str


class MailedLink(TypedDict):
    """The purpose of a link in a mail."""

    purpose: Literal["magic_link", "app_invitation", "verify_email"]
    email: str
    app_name: str
    redirect_to: Annotated[str | None, Field(description="Where the browser goes with the tokens.")]


class HookCall(TypedDict):
    """The payload that a post-auth hook would get for one sign-in or sign-up."""

    id: str
    event: str
    payload: Annotated[dict[str, Any], Field(description="`event`, `user`, `isNewUser` and `provider`.")]
    status: Annotated[
        str,
        Field(
            description="`recorded`: the app has no hook; `called`: its answer has not come; `succeeded` or `failed`."
        ),
    ]
    created_at: datetime


class HookCalls(TypedDict):
    calls: list[HookCall]


class SignInPage(TypedDict):
    """The contents of the page on which users of an app sign in."""

    app_name: str
    logo_url: str | None
    colour: str | None
    invite_only: bool
    providers: Annotated[list[str], Field(description="The OAuth providers that are switched on.")]
    app_url: Annotated[
        str | None,
        Field(description="Where the app is: the first https address that its CORS settings allow."),
    ]


class SentOn(TypedDict):
    """Where the browser is sent, as the header `Location` says too."""

    location: str


class ImportedUser(TypedDict):
    """A user of another system."""

    email: Email
    email_verified: NotRequired[
        Annotated[bool, Field(description="Whether the other system has verified the address; false when left out.")]
    ]
    display_name: NotRequired[DisplayName]
    avatar_url: NotRequired[Annotated[str, Text(2000, pattern=r"^https://")]]
    role: NotRequired[RoleName]
    password_hash: NotRequired[
        Annotated[
            str,
            Secret(300),
            Field(
                description="`$2b$...` of bcrypt, `$scrypt$ln=15,r=8,p=1$...`, or `$argon2id$...`. Without it the user "
                "signs in by mail or sets a new password."
            ),
        ]
    ]
    created_at: NotRequired[Annotated[datetime, Field(description="When the user signed up there.")]]


class ImportedLine(TypedDict):
    """The result for one user of the list."""

    email: str
    status: Annotated[
        Literal["created", "exists", "invalid"],
        Field(description="`exists`: the app has a user of this address, who was not changed."),
    ]
    user_id: Annotated[str | None, Field(description="The id of a user that was created.")]
    reason: Annotated[str | None, Field(description="Why a user is invalid.")]


class Imported(TypedDict):
    """The result for each user, in the order of the list."""

    results: list[ImportedLine]
    created: int
    exist: int
    invalid: int
