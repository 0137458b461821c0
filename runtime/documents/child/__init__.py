"""The code that runs only in the child process. The server imports nothing from here."""
