"""Agents: graphs that call models and tools, their runs, and the people whom those wait for."""
