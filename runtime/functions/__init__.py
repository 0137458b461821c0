"""Runs functions of strangers: programs in processes of their own, which reach nothing but a pipe to the server."""
