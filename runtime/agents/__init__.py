"""Agents: graphs as data, and the engine that executes a run of one. It knows neither REST nor MCP."""
