"""What the tools of agents take and answer."""
