"""The slots of providers, by which the operator's settings lead each action to one of them, and the prices."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from baobab.tools.core import Services
from baobab.tools.people.errors import ActionUnsupported, PeopleDisabled, PeopleUnavailable, ProviderNotRegistered
from baobab.tools.people.providers.port import ACTIONS, Action, PeopleProvider

SlotName = Literal["primary", "secondary", "tertiary"]
SLOT_NAMES: tuple[SlotName, ...] = ("primary", "secondary", "tertiary")

_SEARCH_CREDIT, _LOOKUP_CREDIT = 1_200_000, 20_000_000
"""The prices of a credit in nano-dollars: of searches, and of what is read about one person."""
_FIRST_RESULTS, _FIRST_CREDITS = 10, 7
_PROFILE_CREDITS, _QUEUE_CREDITS, _RESULT_CREDITS = 2, 3, 1
_WHOLE = 100


@dataclass(frozen=True, slots=True)
class Price:
    """What a call costs: the credits, and the nano-dollars."""

    credits: int
    cost: int


FREE = Price(0, 0)


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot with its provider. percent: what is charged of the usual prices; 0 for a slot without a price."""

    name: SlotName
    provider: PeopleProvider
    percent: int = _WHOLE

    def price_search(self, results: int) -> Price:
        """Returns the price of a search; nothing for one without results."""
        if not results:
            return FREE
        return self._price(_FIRST_CREDITS + max(0, results - _FIRST_RESULTS), _SEARCH_CREDIT)

    @property
    def profile_price(self) -> Price:
        return self._price(_PROFILE_CREDITS, _LOOKUP_CREDIT)

    @property
    def queue_price(self) -> Price:
        return self._price(_QUEUE_CREDITS, _LOOKUP_CREDIT)

    @property
    def result_price(self) -> Price:
        """The price of an e-mail address that was found."""
        return self._price(_RESULT_CREDITS, _LOOKUP_CREDIT)

    @property
    def is_charged(self) -> bool:
        return self.percent > 0 and not self.provider.is_simulated

    def _price(self, count: int, each: int) -> Price:
        return Price(count, count * each * self.percent // _WHOLE)


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots as the settings have them.

    routes: the slot of an action; of an action without one, the first slot that has a provider.
    is_allowed: whether the operator has allowed to look up real people.
    takes_callbacks: whether providers reach this server, as e-mail lookups need.
    """

    slots: Mapping[SlotName, Slot]
    routes: Mapping[Action, SlotName]
    is_allowed: bool = False
    takes_callbacks: bool = False

    def route(self, action: Action) -> SlotName:
        """Returns the name of the slot to which an action leads, whether it has a provider or not."""
        first: SlotName = next(iter(self.slots), SLOT_NAMES[0])
        return self.routes.get(action, first)

    def find(self, action: Action) -> Slot:
        """Returns the slot for an action.

        Raises PeopleUnavailable, PeopleDisabled, ProviderNotRegistered or ActionUnsupported.
        """
        if not self.slots:
            raise PeopleUnavailable
        if not self.is_allowed and not all(slot.provider.is_simulated for slot in self.slots.values()):
            raise PeopleDisabled
        name = self.route(action)
        slot = self.slots.get(name)
        if slot is None:
            raise ProviderNotRegistered(name, f"The slot `{name}`, to which `{action}` is routed, has no provider.")
        if action not in slot.provider.actions:
            raise ActionUnsupported(name, f"The provider of the slot `{name}` has no `{action}`.")
        return slot


_TOOL_ACTIONS: Mapping[str, Action] = {
    "people_search_person": "search_person",
    "people_search_company": "search_company",
    "people_profile": "profile",
    "people_email_queue": "profile_email",
    "people_email_lookup": "profile_email",
}


def list_headers(slot: SlotName, price: Price, charged: int, *, is_cached: bool | None = None) -> dict[str, str]:
    """Returns the headers of an answer. charged: in nano-dollars. is_cached: None where nothing can be."""
    headers = {
        "x-people-provider": slot,
        "x-people-credits-consumed": str(price.credits),
        "x-people-usd-charged": f"{charged / 10**9:.6f}",
    }
    return headers if is_cached is None else {**headers, "x-people-cached": str(is_cached).lower()}


def list_refusal_headers(services: Services, tool_name: str) -> dict[str, str]:
    """Returns the headers of every refusal of a tool, for which nothing is charged."""
    action = _TOOL_ACTIONS.get(tool_name, "profile")
    is_cached = False if action == "profile" and tool_name in _TOOL_ACTIONS else None
    return list_headers(services.part(Slots).route(action), FREE, 0, is_cached=is_cached)


def parse_routes(words: tuple[str, ...]) -> dict[Action, SlotName]:
    """Parses routes such as `search_person=secondary`, which the settings have validated."""
    pairs = dict(word.split("=") for word in words)
    return {action: name for action in ACTIONS for name in SLOT_NAMES if pairs.get(action) == name}
