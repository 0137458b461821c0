"""The object store: whole files by key, with several backends."""
