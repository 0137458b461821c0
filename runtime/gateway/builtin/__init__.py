"""Models that are part of Baobab: they need no provider, no key and no network, and cost nothing."""
