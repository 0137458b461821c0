"""Types of columns and their values, in the one form that both databases keep and answer."""
