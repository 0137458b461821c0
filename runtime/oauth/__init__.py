"""The parts that the authorization servers of accounts and of apps share: clients and redirect addresses."""
