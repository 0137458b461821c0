"""The texts of mails: subject, plain text and HTML, made from a template and the app's name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_BLACK = "#18181b"
_CODE_TEXT = """{{ greeting }}
{% if code is defined %}
    {{ code }}
{% endif %}{% if link is defined %}
{{ link }}
{% endif %}
{{ (lifetime ~ ' ' ~ ignore)|trim }}

{{ app }}
"""
_CODE_HTML = """<!doctype html>
<html lang="en">
<body style="margin:0;padding:24px;background:#f4f4f5;color:#18181b;font:16px/1.5 system-ui,sans-serif">
<div style="max-width:480px;margin:0 auto;padding:32px;background:#ffffff;border-radius:8px">
<p style="margin:0 0 16px">{{ greeting }}</p>
{% if code is defined %}\
<p style="margin:0 0 16px;font:600 32px/1.2 ui-monospace,monospace;letter-spacing:6px;color:{{ colour }}">{{ code }}</p>
{% endif %}{% if link is defined %}\
<p style="margin:0 0 16px"><a href="{{ link }}" style="color:{{ colour }};font-weight:600">{{ link }}</a></p>
{% endif %}\
<p style="margin:0 0 16px;color:#52525b">{{ (lifetime ~ ' ' ~ ignore)|trim }}</p>
<p style="margin:0;color:#52525b">{{ app }}</p>
</div>
</body>
</html>
"""
_LIST_TEXT = """{{ subject }}.
{% for group in calls.groups %}
{{ group.name }} ({{ group.calls|length }})
{% for call in group.calls %}- {{ call.title }}
{% if call.get('warning') %}  Check: {{ call.warning }}
{% endif %}{% if call.excerpt %}  {{ call.excerpt }}
{% endif %}  {{ call.left }}: {{ call.url }}
{% endfor %}{% endfor %}{% if calls.more %}
and {{ calls.more }} more
{% endif %}
All that waits: {{ link }}

{{ app }}
"""
_LIST_HTML = """<!doctype html>
<html lang="en">
<body style="margin:0;padding:24px;background:#f4f4f5;color:#18181b;font:16px/1.5 system-ui,sans-serif">
<div style="max-width:560px;margin:0 auto;padding:32px;background:#ffffff;border-radius:8px">
<p style="margin:0 0 16px;font-weight:600">{{ subject }}.</p>
{% for group in calls.groups %}\
<p style="margin:16px 0 8px;color:#52525b">{{ group.name }} ({{ group.calls|length }})</p>
{% for call in group.calls %}\
<p style="margin:0 0 12px"><a href="{{ call.url }}" style="color:{{ colour }};font-weight:600">{{ call.title }}</a><br>
{% if call.get('warning') %}<strong>Check: {{ call.warning }}</strong><br>
{% endif %}{% if call.excerpt %}{{ call.excerpt }}<br>
{% endif %}\
<span style="color:#52525b">{{ call.left }}</span></p>
{% endfor %}{% endfor %}\
{% if calls.more %}<p style="margin:0 0 16px">and {{ calls.more }} more</p>
{% endif %}\
<p style="margin:16px 0"><a href="{{ link }}" style="color:{{ colour }};font-weight:600">All that waits</a></p>
<p style="margin:0;color:#52525b">{{ app }}</p>
</div>
</body>
</html>
"""
_MESSAGE_TEXT = """{{ body }}

{{ app }}
"""
_MESSAGE_HTML = """<!doctype html>
<html lang="en">
<body style="margin:0;padding:24px;background:#f4f4f5;color:#18181b;font:16px/1.5 system-ui,sans-serif">
<div style="max-width:560px;margin:0 auto;padding:32px;background:#ffffff;border-radius:8px">
<p style="margin:0 0 24px;white-space:pre-wrap;overflow-wrap:anywhere">{{ body }}</p>
<p style="margin:0;color:#52525b">{{ app }}</p>
</div>
</body>
</html>
"""
_IGNORE = "If you did not ask for this, ignore this mail: nothing happens without the code."


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of mail. subject and words are Jinja2 templates themselves."""

    subject: str
    words: Mapping[str, str]
    text: str = _CODE_TEXT
    html: str = _CODE_HTML


TEMPLATES = {
    "verify_email": Template(
        "Confirm your address for {{ app }}",
        {
            "greeting": "Confirm your e-mail address for {{ app }} by this link or code:",
            "lifetime": "It is good for 24 hours.",
            "ignore": _IGNORE,
        },
    ),
    "magic_link": Template(
        "Your sign-in code for {{ app }}",
        {
            "greeting": "Sign in to {{ app }} with this code:",
            "lifetime": "It is good for 15 minutes, once. Tell it to nobody.",
            "ignore": _IGNORE,
        },
    ),
    "reset_password": Template(
        "Your code for a new password for {{ app }}",
        {
            "greeting": "Set a new password for {{ app }} with this code:",
            "lifetime": "It is good for an hour, once. Tell it to nobody.",
            "ignore": _IGNORE,
        },
    ),
    "add_address": Template(
        "Confirm your address for {{ app }}",
        {
            "greeting": "Keep what you have begun in {{ app }} under this address with this code:",
            "lifetime": "It is good for 15 minutes, once. Tell it to nobody.",
            "ignore": _IGNORE,
        },
    ),
    "app_invitation": Template(
        "You are invited to {{ app }}",
        {
            "greeting": "You are invited to {{ app }}. Accept by this link or code:",
            "lifetime": "The invitation is good for seven days, once.",
            "ignore": "If you do not expect it, ignore this mail: nothing happens without the link or code.",
        },
    ),
    "invitation": Template(
        "{{ inviter }} invites you to {{ organisation }}",
        {
            "greeting": "{{ inviter }} invites you to work with {{ organisation }} in {{ app }}. Accept here:",
            "lifetime": "The invitation is good for seven days, once.",
            "ignore": "If you do not know the sender, ignore this mail: nothing happens without the link.",
        },
    ),
    "account_password": Template(
        "Set a new password for {{ app }}",
        {
            "greeting": "Set a new password for your account at {{ app }} here:",
            "lifetime": "The link is good for an hour, once.",
            "ignore": "If you did not ask for this, ignore this mail: your password stays as it is.",
        },
    ),
    "account_email": Template(
        "Confirm your new address for {{ app }}",
        {
            "greeting": "Use this address for your account at {{ app }}:",
            "lifetime": "The link is good for an hour, once.",
            "ignore": "If you did not ask for this, ignore this mail: nothing happens without the link.",
        },
    ),
    "account_email_changed": Template(
        "Your address at {{ app }} has changed",
        {
            "greeting": "Your account at {{ app }} now has the address {{ email }}, and no longer this one.",
            "lifetime": "",
            "ignore": "If this was not you, ask whoever operates {{ app }} at once.",
        },
    ),
    "notice_address": Template(
        "Confirm your address for notices of {{ app }}",
        {
            "greeting": "Confirm this address for {{ app }} notifications. Enter this code:",
            "lifetime": "",
            "ignore": "If you did not ask for this, ignore this mail: you get no further one.",
        },
    ),
    "waiting_calls": Template("{{ subject }}", {}, _LIST_TEXT, _LIST_HTML),
    "trigger_failing": Template(
        "The trigger {{ name }} of {{ app_title }} does not work",
        {
            "greeting": "The trigger {{ name }} of {{ app_title }}: {{ words }} See what happened:",
            "lifetime": "",
            "ignore": "You get this mail once, until it has worked again. The trigger has a switch for it.",
        },
    ),
    "message": Template("{{ subject }}", {}, _MESSAGE_TEXT, _MESSAGE_HTML),
    "test": Template(
        "A test mail from {{ app }}",
        {
            "greeting": "This is a test: the mail of {{ app }} reaches you.",
            "lifetime": "",
            "ignore": "There is nothing to do.",
        },
    ),
}


@dataclass(frozen=True, slots=True)
class RenderedMail:
    subject: str
    text: str
    html: str


def render_mail(template: str, app_name: str, values: Mapping[str, str], colour: str | None = None) -> RenderedMail:
    """Renders a mail. Every value is text: nothing in it becomes markup.

    values: `code`, `link` or both are shown if they are there. `calls` is a list of what waits as JSON.
    """
    mail_template = TEMPLATES[template]
    context: dict[str, Any] = {**values, "app": app_name, "colour": colour or _BLACK}
    if mail_template.text is _LIST_TEXT:
        context["calls"] = json.loads(values.get("calls") or "{}") or {"groups": [], "more": 0}
    plain, escaping = _environments()
    words = {name: plain.from_string(text).render(context) for name, text in mail_template.words.items()}
    return RenderedMail(
        " ".join(plain.from_string(mail_template.subject).render(context).split()),
        plain.from_string(mail_template.text).render(context | words),
        escaping.from_string(mail_template.html).render(context | words),
    )


@cache
def _environments() -> "tuple[Environment, Environment]":
    """Returns Jinja2's environments for plain text and for HTML. Importing it would slow the start down."""
    from jinja2 import Environment, StrictUndefined

    plain = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - for plain text
    return plain, Environment(undefined=StrictUndefined, autoescape=True)
