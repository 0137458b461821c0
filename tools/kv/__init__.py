"""The key-value store of an app: entries, counters, compare-and-swap, and the rules that expose keys to end users."""
