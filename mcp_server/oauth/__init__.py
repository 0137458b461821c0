"""The OAuth endpoints: the SDK speaks the protocol, the registry decides."""
