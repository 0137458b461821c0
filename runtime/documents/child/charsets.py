"""Loads codecs while files can still be opened, because each codec is a module."""

import codecs


def load_charsets(*names: str) -> None:
    for name in names:
        codecs.lookup(name)
        b"a".decode(name, "replace")
