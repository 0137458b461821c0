"""Agents: a graph of an app as data, and what drives one run of it. It knows no door."""
