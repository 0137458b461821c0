"""The schemas of the agents' tools: their arguments and answers."""
