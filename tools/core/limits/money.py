"""Money: integer nano-dollars, and their exact conversion from and to decimal dollars."""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

USD = 10**9
"""One dollar in nano-dollars."""
MOST = 1_000_000 * USD
"""The largest single amount, so that sums stay far within 64 bits."""

_PLACES = 9
_WRITTEN = r"^([0-9]{1,7})(\.[0-9]{1,9})?$"


def nanos(text: str) -> int:
    """Parses a text such as `12.50`. Raises ValueError unless it is an amount from 0 to a million dollars."""
    match = re.fullmatch(_WRITTEN, text)
    amount = int(match[1] + (match[2] or ".")[1:].ljust(_PLACES, "0")) if match else -1
    if not 0 <= amount <= MOST:
        raise ValueError(f"must be a number of dollars from 0 to {MOST // USD} with at most 9 decimals, such as 12.50")
    return amount


def usd(nanos: int) -> float:
    """Returns dollars as a float: to be shown, never to be calculated with."""
    return nanos / USD


def dollars(amount: int) -> str:
    """Returns the exact decimal text of nano-dollars with at least two decimals: `12.50`."""
    whole, places = divmod(abs(amount), USD)
    decimals = f"{places:0{_PLACES}d}".rstrip("0").ljust(2, "0")
    return f"{'-' if amount < 0 else ''}{whole}.{decimals}"


@dataclass(frozen=True, slots=True)
class Amount:
    """Nano-dollars that callers give as a JSON number of dollars or as the text of one: `Annotated[int, Amount()]`.

    JSON's numbers arrive as binary fractions. The shortest decimal of one is what was written, as long as that had 15
    digits or fewer, which every amount up to a million dollars with 9 decimals has.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_parse_amount)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        number = {"type": "number", "minimum": 0, "maximum": MOST // USD}
        return {"anyOf": [number, {"type": "string", "pattern": _WRITTEN, "maxLength": 17}]}


Usd = Annotated[
    int, Amount(), Field(description="US dollars, with up to 9 decimals; a number or its text.", examples=["12.50"])
]


def _parse_amount(value: object) -> int:
    match value:
        case bool():
            pass
        case str():
            return nanos(value)
        case int() | float():
            return nanos(format(Decimal(repr(value)), "f"))
    raise PydanticCustomError("amount_type", "must be a number or a string")
