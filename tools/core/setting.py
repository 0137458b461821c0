"""The settings of the installation as its operator may read them."""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import TypedDict


class Setting(TypedDict):
    name: str
    value: str
    is_default: bool
    description: str


@dataclass(frozen=True)
class InstallationSettings:
    """The port to the settings of the installation, without secrets."""

    settings: Sequence[Setting]
