"""Valkey: a pipeline of commands, libraries of server-side functions, and sliding windows."""
