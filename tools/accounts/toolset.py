"""The toolset of accounts."""

from baobab.tools.core import Toolset

accounts = Toolset("accounts", "Accounts of people who build apps: sign up, sign in, stay signed in.", base="/platform")
