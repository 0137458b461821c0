"""How users sign in is changed only soon after a sign-in: a stolen refresh token must not add a way in."""

from datetime import timedelta

from baobab.tools.core import Call, EndUser, Forbidden
from baobab.tools.users.errors import SignInTooOld
from baobab.tools.users.sessions import find_session

RECENT = timedelta(minutes=15)


async def require_recent_sign_in(call: Call) -> None:
    """Raises SignInTooOld, and Forbidden for a key that acts for the user. It precedes the call's first statement."""
    caller = call.caller
    assert isinstance(caller, EndUser)
    if caller.session_id is None:
        raise Forbidden("A key cannot change how a user signs in.", remediation="Sign in as the user.")
    session = await find_session(call, caller.session_id)
    if session is None or call.now - session.created_at > RECENT:
        raise SignInTooOld
