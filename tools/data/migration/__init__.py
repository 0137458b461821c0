"""Changes of an app's tables, from one catalogue to another, without loss."""
