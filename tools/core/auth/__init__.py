"""Who calls, with which credential, and what that may do."""
