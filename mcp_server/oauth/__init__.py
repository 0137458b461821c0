"""The OAuth endpoints: the SDK implements the protocol, the registry makes the decisions."""
