"""The work of the commands, imported when a command runs, so that `baobab --help` need not load the application."""
