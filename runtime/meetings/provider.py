"""The port to a provider of meeting bots: what a bot is asked to do, and what the provider says about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from typing_extensions import TypedDict

Status = Literal["joining", "waiting_room", "in_call", "recording", "ended", "done", "fatal"]
ArtifactState = Literal["none", "pending", "ready", "failed"]
STATUSES: tuple[Status, ...] = ("joining", "waiting_room", "in_call", "recording", "ended", "done", "fatal")
"""The states of a bot in the order in which it passes through them. The last two are its end."""
TERMINAL: frozenset[Status] = frozenset({"done", "fatal"})
LEAVES = frozenset(
    {"waitingRoomTimeoutSec", "noOneJoinedTimeoutSec", "everyoneLeftTimeoutSec", "inCallNotRecordingTimeoutSec"}
)
"""After what a bot can be asked to leave by itself."""
ONE_BOT = "Another bot that this server has sent is in that meeting already, and its provider sends one at a time."
BOT_ID, ATTEMPT = "bb_bot_id", "bb_attempt"
"""Keys of a provider's metadata: our id of the bot, and its attempt. Callers cannot set keys that begin with `bb_`."""

ProviderName = Literal["", "recall", "attendee", "vexa"]
"""The real provider that an operator chose; empty for none."""


@dataclass(frozen=True, slots=True)
class BotOrder:
    """What a bot is asked to do, as it stands in our own row."""

    id: str
    meeting_url: str
    bot_name: str
    recording: Literal["mp4", "audio_only"] | None
    transcript: bool
    automatic_leave: Mapping[str, int]
    metadata: Mapping[str, str]
    created_at: datetime
    attempt: int = 0
    """How many bots were sent for it before, and failed to get in."""
    left_at: datetime | None = None
    """When it was told to leave the call."""


@dataclass(frozen=True, slots=True)
class StatusChange:
    """One change of a bot's state, in the words of the provider whose wire is the contract's.

    status: None for a code that we do not know; the bot then keeps its state.
    """

    code: str
    at: datetime
    status: Status | None
    sub_code: str | None = None

    @property
    def id(self) -> str:
        """The same for the same change, however often and in whatever way we hear of it."""
        return f"{self.code}@{self.at.isoformat()}"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A recording or a transcript, with an address that is good for a short while."""

    state: ArtifactState = "none"
    id: str | None = None
    url: str | None = None


class Word(TypedDict):
    """start, end: seconds from the beginning of the recording."""

    text: str
    start: float
    end: float


class Speaker(TypedDict):
    id: str
    name: str


class Passage(TypedDict):
    """What one participant said without a break."""

    participant: Speaker
    words: list[Word]


@dataclass(frozen=True, slots=True)
class BotReport:
    """All that a provider says about one bot now."""

    changes: tuple[StatusChange, ...] = ()
    recording: Artifact = Artifact()
    transcript: Artifact = Artifact()
    recorded_seconds: int | None = None
    """The length of all its recordings; None if the provider does not say."""
    participants: tuple[str, ...] = ()
    """Who was seen in the call, where the report says it."""


@dataclass(frozen=True, slots=True)
class ProviderEvent:
    """What a verified webhook says. change: None where it only says that something is new at the provider."""

    id: str
    """Derived from what happened, so that a repeated delivery has it again."""
    provider_id: str
    bot_id: str | None
    """Our id, from the bot's metadata."""
    change: StatusChange | None = None


class ProviderBusy(Exception):
    """The provider cannot do it now. The same request may succeed after `seconds`."""

    def __init__(self, why: str, seconds: float = 30.0) -> None:
        super().__init__(why)
        self.seconds = seconds


class ProviderRefused(Exception):
    """The provider will not do it, however often it is asked. code: a word for it; the text says why."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class BotGone(Exception):
    """The provider does not know the bot any more."""


class HookRefused(Exception):
    """A webhook that the provider has not signed, or not for now."""


class HookTooInvolved(Exception):
    """A webhook with more parts than it may have before it is known who has sent it."""


class MeetingProvider(Protocol):
    """A provider of meeting bots. Methods that ask it raise ProviderBusy, and ProviderRefused where it will not."""

    @property
    def name(self) -> str: ...

    @property
    def is_simulated(self) -> bool: ...

    @property
    def records(self) -> bool:
        """Whether its recordings can be had. Nothing is reserved or charged for those that cannot."""
        ...

    @property
    def leaves(self) -> frozenset[str]:
        """The names of the `automaticLeave` times that it takes."""
        ...

    def find_fault(self, meeting_url: str) -> str | None:
        """Returns why its bots cannot join a meeting at this address of a known platform; None if they can."""
        ...

    async def create(self, order: BotOrder) -> str:
        """Sends a bot into a call and returns the provider's id of it."""
        ...

    async def find(self, order: BotOrder) -> str | None:
        """Returns the provider's id of a bot that an earlier attempt may have created; None if there is none."""
        ...

    async def read(self, order: BotOrder, provider_id: str) -> BotReport:
        """Returns all that the provider says about a bot. Raises BotGone."""
        ...

    async def read_transcript(self, order: BotOrder, provider_id: str) -> list[Passage]:
        """Returns the transcript of a call that is over, in the contract's shape. Raises BotGone."""
        ...

    async def list_participants(self, order: BotOrder, provider_id: str) -> tuple[str, ...]:
        """Returns the names of those who were in a call that is over, where another request must be made for them.

        Raises BotGone.
        """
        ...

    async def leave(self, order: BotOrder, provider_id: str) -> None:
        """Makes a bot leave its call. Does nothing if it has left already."""
        ...

    def find_next(self, order: BotOrder) -> datetime | None:
        """Returns before when there will be nothing new about a bot; None if the provider cannot tell."""
        ...

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> ProviderEvent | None:
        """Returns what a webhook says; None if it concerns no bot.

        Raises HookRefused unless the provider signed it. Of what strangers send, nothing is read beforehand that could
        take long: HookTooInvolved.
        """
        ...


def read_names(people: Any) -> list[str]:
    """Returns the names in a provider's list of people; some, such as of callers by phone, have none."""
    names = [each.get("name") for each in people if isinstance(each, dict)] if isinstance(people, list) else []
    return [name for name in names if isinstance(name, str) and name]


def parse_instant(value: Any) -> datetime | None:
    """Parses a provider's time; None for anything else. A time without a zone is UTC."""
    if not isinstance(value, str):
        return None
    try:
        instant = datetime.fromisoformat(value)
    except ValueError:
        return None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
