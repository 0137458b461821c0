"""`baobab openapi` and `baobab tools`: what the server offers."""

import json
from typing import Any

import click

from baobab import __version__
from baobab.cli.installation import load_settings


@click.command()
def openapi() -> None:
    """Print the OpenAPI 3.1 document of the REST API."""
    from baobab.http.openapi import build_document

    click.echo(json.dumps(build_document(_build_registry(), __version__, load_settings().address), indent=2))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Names, schemas and effects as JSON.")
def tools(*, as_json: bool) -> None:
    """Print all tools: name, effect, route and what each does."""
    from baobab.tools.core.errors import name_operations

    registry = _build_registry()
    if as_json:
        click.echo(json.dumps([_describe_tool(tool) for tool in registry.tools.values()], indent=2))
        return
    for toolset in registry.toolsets:
        click.echo(f"{toolset.name}: {toolset.description}")
        for tool in toolset.tools.values():
            route = f"{tool.rest.method} {tool.rest.path}" if tool.rest else ""
            click.echo(f"  {tool.name:28} {tool.effect:12} {route:50} {name_operations(tool.summary)}")


def _build_registry() -> Any:
    from baobab.tools import toolsets
    from baobab.tools.core.registry import Registry

    return Registry(toolsets())


def _describe_tool(tool: Any) -> dict[str, Any]:
    from baobab.tools.core.errors import name_operations, name_operations_within

    return {
        "name": tool.name,
        "toolset": tool.toolset.name,
        "effect": tool.effect,
        "description": name_operations(tool.description),
        "route": f"{tool.rest.method} {tool.rest.path}" if tool.rest else None,
        "access": tool.access.description,
        "input_schema": name_operations_within(tool.input_schema),
        "output_schema": name_operations_within(tool.output_schema),
    }
