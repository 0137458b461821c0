"""Providers of integrations: the port that the tools use, the services behind it, and a simulator."""
