"""The graph of an agent as data: its fields, their bounds, and what is checked before it is saved."""
