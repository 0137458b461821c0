"""The tools of models."""
