"""Platform accounts: signing up, signing in, and the sessions in between."""
