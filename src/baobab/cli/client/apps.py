"""`baobab apps`: the apps that `--app` can name."""

import click

from baobab.cli.client.errors import json_option
from baobab.cli.client.output import print_json, print_table
from baobab.cli.client.server import find_server


@click.command()
@json_option
def apps(*, as_json: bool) -> None:
    """List the apps that you may use on the server: id, name and subdomain, newest first."""
    server = find_server()
    found_apps, cursor = [], None
    while True:
        page = server.call("GET", "/apps", query={"cursor": cursor})
        found_apps += page["apps"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    if as_json:
        print_json({"apps": found_apps})
        return
    print_table([(each["id"], each["name"], each["subdomain"] or "") for each in found_apps], "There are no apps.")
