"""What runs in the child process only. Nothing here is imported by the server."""
