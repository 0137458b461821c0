"""The parameters that the tools of attention rules share."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import NameText, Text
from baobab.tools.substrate.capabilities import fields
from baobab.tools.substrate.schemas import CapabilityName, ConditionMode

RuleName = Annotated[str, NameText(200, min_length=1)]
CronText = Annotated[str, Text(200, min_length=1)]
MostFires = Annotated[int, Field(ge=1, le=10_000)]


class RuleBody(TypedDict):
    """The body of a rule: its schedule, its condition, and the action that it proposes."""

    trigger_cron: Annotated[
        CronText, Field(description="Five fields, in UTC: minute, hour, day of the month, month, day of the week.")
    ]
    condition_mode: Annotated[
        ConditionMode,
        Field(description="`snapshot_predicate` asks the counts of today's snapshot, `row_query` the rows of a table."),
    ]
    condition: Annotated[
        fields.Attributes,
        Field(description="JSON-Logic; for `row_query`, an object of `table`, `where` (logic over a row) and `limit`."),
    ]
    action_capability: Annotated[
        CapabilityName, Field(description="What is proposed; op:substrate_capabilities lists all.")
    ]
    action_payload_template: Annotated[
        fields.Attributes,
        Field(
            description="The payload, in whose texts `{{var}}` is filled from what was found, as in `{{row.title}}`."
        ),
    ]
    description: Annotated[fields.LongText | None, Field(default=None, description="What it is for.")]
    enabled: Annotated[bool, Field(default=True, description="Whether it fires.")]
    max_fires_per_day: Annotated[
        MostFires | None, Field(default=None, description="How many actions it proposes a day at most.")
    ]


class NamedRuleBody(RuleBody):
    """A rule as it is made and replaced."""

    name: Annotated[RuleName, Field(description="What people call it.")]
