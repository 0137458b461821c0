"""The error of a transfer."""


class TransferRefused(Exception):
    """The message is one line for the operator: what is wrong, and what to do about it."""
