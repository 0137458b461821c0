"""What authorization servers have in common, that of accounts and those of apps: clients and their addresses."""
