"""What keeps a transfer from being made."""


class TransferRefused(Exception):
    """One line for the operator: what is wrong, and what to do about it."""
