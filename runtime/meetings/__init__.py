"""Providers of meeting bots: the port that the tools use, the wires of the services behind it, and a simulator."""
