"""/console/sessions: where this person is signed in."""

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

TEMPLATE = """{% extends "base.html" %}
{% import "parts.html" as parts %}
{% block main %}
<h1>Sessions</h1>
{% if by_key %}<p>You signed in with a key, which sees the sessions that it began.
Sign in with a password to see all of the account.</p>{% endif %}
<ul class="rows">
{% for row in sessions %}
<li class="row"><div class="grow"><strong>{{ "This session" if row.id == session.id else "Another session" }}</strong>
<p class="soft">{{ "by an API key" if row.by_key else "by a person" }}, from {{ row.ip }}, last seen
{{ parts.moment(row.last_seen_at) }}, ends {{ parts.moment(row.expires_at) }}</p>
<p>{{ parts.quoted(row.user_agent or "no user agent") }}</p></div>
<form method="post" action="{{ root }}/sessions/{{ row.id }}/revoke">{{ parts.csrf(session) }}
<button class="caution">End</button></form></li>
{% endfor %}
</ul>
{% endblock %}
"""


async def show_sessions(visit: Visit) -> Context:
    return {**await visit.call("console_sessions_list"), "by_key": visit.session.caller.key_id is not None}


async def revoke(visit: Visit) -> str:
    await visit.call("console_session_revoke", session_id=visit.parts["id"])
    return "/sessions"


PAGES = (Page("/sessions", "Sessions", TEMPLATE, show_sessions, menu="Sessions", of_account=True),)
FORMS = (Form("/sessions/{id}/revoke", revoke),)
