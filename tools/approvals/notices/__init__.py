"""Notices: people are told what waits for them, by mail, webhook, chat or web push."""
