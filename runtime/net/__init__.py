"""What goes out of this server: the guarded client, resolved addresses, webhooks, mail."""
