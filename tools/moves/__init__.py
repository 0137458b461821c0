"""Moving apps from one region to another."""
