"""Tools that mail a link to the owner of an address, and those that use it up."""

from typing import Annotated

from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from baobab.runtime.passwords import hash_password
from baobab.tools.accounts import sessions
from baobab.tools.accounts.errors import AccountLinkSpent, EmailTaken, NoMailServer, WrongPassword
from baobab.tools.accounts.mailed_links import find_account, make_link, open_link
from baobab.tools.accounts.schemas import EmailChanged, EmailChangeMailed, PasswordReset, ResetMailed
from baobab.tools.accounts.tools.accounts import note_account, verify_own_password
from baobab.tools.accounts.toolset import accounts
from baobab.tools.core import EVERYBODY, AnyAccount, Audit, Call, Email, Guard, Mcp, PerAddress, Rest, Secret
from baobab.tools.core.auth.passwords import AnyPassword, Password, WeakPassword, check_password
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.auth.tables import accounts as rows
from baobab.tools.core.limits.rate_limits import resolve_answer
from baobab.tools.core.mail import Mail

_WINDOW, _HOUR = 900, 3600
_MOST_MAILS = 3
"""Links that are mailed to one address in an hour, whoever asks."""

LinkToken = Annotated[str, Secret(2000, min_length=1)]


@accounts.tool(
    "POST /forgot-password",
    access=EVERYBODY,
    effect="write",
    limit=PerAddress(5, _WINDOW),
    audit=Audit("password_reset_requested", category="auth", resource="account"),
    rest=Rest(examples={"email": "ada@example.com"}),
    mcp=Mcp(offered=False),
)
async def platform_forgot_password(call: Call, email: Email) -> ResetMailed:
    """Mail a link for a new password to an address. The answer is the same whether or not it has an account.

    Without a mail server nothing is sent: whoever operates the installation sets a password with `baobab password`.

    email: the account's address.
    """
    await resolve_answer(call.services.limits.spend("forgot_password", email, _MOST_MAILS, _HOUR))
    delivers = call.services.mailer.delivers
    if delivers:
        call.services.liveness.require_live()
        await call.enqueue("accounts_mail_new_password", {"email": email})
    return {"sends_mail": delivers}


@accounts.tool(
    "POST /reset-password",
    access=EVERYBODY,
    effect="write",
    raises=(AccountLinkSpent, WeakPassword),
    limit=PerAddress(20, _WINDOW),
    audit=Audit("password_reset_completed", category="auth", action="update", resource="account"),
    rest=Rest(examples={"token": "v1.0a1b2c3d.c2VhbGVk", "password": "Battery staple 9?"}),
    mcp=Mcp(offered=False),
)
async def platform_reset_password(call: Call, token: LinkToken, password: Password) -> PasswordReset:
    """Set a new password with the token of a mailed link, which works once within an hour. Every session ends.

    API keys and passkeys stay as they are.

    token: the end of the link, after `token=`.
    password: the new password.
    """
    check_password(password)
    password_hash = await hash_password(password)
    account, _ = await open_link(call, "new_password", token)
    # Of two who use the link at once, one changes the password, and the other's link is spent.
    is_unchanged = (rows.c.id == account.id, rows.c.password_hash.is_not_distinct_from(account.password_hash))
    values = {"password_hash": password_hash, "email_verified": True}
    if (await call.execute(update(rows).where(*is_unchanged).values(**values))).rowcount != 1:
        raise AccountLinkSpent
    await sessions.end_all(call, account.id)
    await call.services.notices.publish(call.unit, "account", account.id)
    await note_account(call, account.id)
    return {"email": account.email}


@accounts.tool(
    "POST /me/email",
    access=AnyAccount(APPROVER, keys=False),
    effect="write",
    raises=(NoMailServer, WrongPassword),
    audit=Audit("account.email.requested", category="auth", resource="account"),
    rest=Rest(examples={"email": "ada@example.org", "current_password": "correct Horse 7!"}),
    mcp=Mcp(offered=False),
    guard=Guard(grants=True),
)
async def platform_change_email(
    call: Call, email: Email, current_password: AnyPassword | None = None
) -> EmailChangeMailed:
    """Change the account's address: a link goes to the new one, and the address changes when it is used.

    email: the new address.
    current_password: the present password, if the account has one.
    """
    if not call.services.mailer.delivers:
        raise NoMailServer
    account_id = call.account.account_id
    await verify_own_password(call, account_id, current_password)
    await resolve_answer(call.services.limits.spend("change_email", account_id, _MOST_MAILS, _HOUR))
    account = await find_account(call.execute, rows.c.id == account_id)
    link, expires_at = make_link(call.services, "new_email", account, new_email=email)
    await call.services.mailer.send(call.unit, Mail(email, "account_email", {"link": link}, expires_at=expires_at))
    call.audit.resource_id = account_id
    return {"email": email}


@accounts.tool(
    "POST /confirm-email",
    access=EVERYBODY,
    effect="write",
    raises=(AccountLinkSpent, EmailTaken),
    limit=PerAddress(20, _WINDOW),
    audit=Audit("account.email.update", category="auth", action="update", resource="account"),
    rest=Rest(examples={"token": "v1.0a1b2c3d.c2VhbGVk"}),
    mcp=Mcp(offered=False),
)
async def platform_confirm_email(call: Call, token: LinkToken) -> EmailChanged:
    """Give an account the address to which this token was mailed. The former address gets a notice.

    token: the end of the link, after `token=`.
    """
    account, content = await open_link(call, "new_email", token)
    email = content["new_email"]
    is_unchanged = (rows.c.id == account.id, rows.c.email == account.email)
    try:
        result = await call.execute(update(rows).where(*is_unchanged).values(email=email, email_verified=True))
    except IntegrityError as exc:
        raise EmailTaken from exc
    if result.rowcount != 1:
        raise AccountLinkSpent
    if call.services.mailer.delivers:
        await call.services.mailer.send(call.unit, Mail(account.email, "account_email_changed", {"email": email}))
    await call.services.notices.publish(call.unit, "account", account.id)
    await note_account(call, account.id)
    call.audit.data |= {"from": account.email, "to": email}
    return {"email": email}
