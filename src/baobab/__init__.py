"""Baobab: a backend for AI agents and the apps around them."""

__version__ = "0.1.0"
