"""Commands that are clients of a server: they call it over REST, with a key or what `baobab login` stored."""
