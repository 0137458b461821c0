"""The gateway to models: which there are, who serves them, how a call is routed. It knows no door and no account."""
