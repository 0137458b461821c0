"""Backs up a data folder while servers use it, and restores it."""
