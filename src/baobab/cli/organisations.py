"""`baobab plan` and `baobab credits`: the plans of organisations, and their credits."""

from pathlib import Path

import click

from baobab.cli.errors import CommandError
from baobab.cli.installation import data_option, print_lines
from baobab.cli.parameters import Dollars, Word
from baobab.tools.core.limits.plans import PLANS


@click.command("plan")
@click.argument("org", type=Word())
@click.argument("plan", type=click.Choice(list(PLANS)), required=False, metavar="[PLAN]")
@data_option
def plan_(org: str, plan: str | None, data: Path | None) -> None:
    """Print the plan of the organisation ORG; if [PLAN] is given, change it to that plan.

    Example: `baobab plan ada@example.com launch`

    ORG is the id of an organisation, or the e-mail address of the account whose personal organisation it is.
    docs/settings.md describes the plans. A running server uses the new plan at once. What the organisation has already
    stays, even if the new plan allows less.
    """
    from baobab.cli.work.plans import change_plan, show_plan

    print_lines(data, lambda services: change_plan(services, org, plan) if plan else show_plan(services, org))


@click.group("credits")
def credits_() -> None:
    """Show and change what organisations may spend on models.

    There is no payment provider in Baobab: how an organisation pays is between it and you, and these commands record
    what you agreed. They work on the data folder itself. You can use them while the server runs; changes take effect at
    once. ORG is the id of an organisation, or the e-mail address of the account whose personal organisation it is.
    Amounts are US dollars with up to 9 decimals.
    """


@credits_.command("show")
@click.argument("org", type=Word())
@data_option
def credits_show(org: str, data: Path | None) -> None:
    """Print the credits of the organisation ORG: allowance, top-ups, floor, reservations and budgets."""
    from baobab.cli.work.credits import show_credits

    print_lines(data, lambda services: show_credits(services, org))


@credits_.command("top-up")
@click.argument("org", type=Word())
@click.argument("usd", type=Dollars())
@click.option(
    "--reference", type=Word(), required=True, help="Names the payment. A reference that was used before adds nothing."
)
@data_option
def credits_top_up(org: str, usd: int, reference: str, data: Path | None) -> None:
    """Add credits of USD dollars, which do not expire, to the organisation ORG, and print its credits.

    Example: `baobab credits top-up ada@example.com 25 --reference invoice-7`
    """
    from baobab.cli.work.credits import top_up

    if not usd:
        raise CommandError("The top-up is 0 dollars: give more than 0.")
    print_lines(data, lambda services: top_up(services, org, usd, reference))


@credits_.command("terms")
@click.argument("org", type=Word())
@click.option("--allowance", type=Dollars(), help="Dollars per month, instead of the allowance of its plan.")
@click.option("--floor", type=Dollars(below=True), help="How far below zero it may go, such as -10.")
@data_option
def credits_terms(org: str, allowance: int | None, floor: int | None, data: Path | None) -> None:
    """Set the organisation ORG's own terms, and print its credits.

    Example: `baobab credits terms ada@example.com --allowance 50 --floor -10`

    This sets both terms at once: an option that you leave out goes back to what its plan says.
    """
    from baobab.cli.work.credits import set_terms

    print_lines(data, lambda services: set_terms(services, org, allowance, floor))
