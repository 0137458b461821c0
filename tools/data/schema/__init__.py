"""The description of an app's tables: the catalogue, and the schema document that a developer writes."""
