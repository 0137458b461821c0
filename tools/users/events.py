"""The events of an app's users."""

AUTHENTICATED = "user.authenticated"
"""The event of a sign-in or sign-up: it tells what the app's post-auth hook is told (document 1)."""

EMAIL_VERIFIED, DELETED = "user.email_verified", "user.deleted"
