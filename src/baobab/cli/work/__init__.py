"""What the commands do. It is imported when a command runs, so that `baobab --help` need not load the application."""
