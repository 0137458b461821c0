"""Valkey: one pipeline of commands, the libraries of functions it runs there, and windows of time counted there."""
