"""/console/apps/{app}/models: the models that an app can call, and a form that tries them."""

import time
from typing import Any

from baobab.http.console.app_page import read_app, refuse_field
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.guard.escaping import escape_json

_PATH = "/apps/{app}/models"
_FIELDS = ("model", "system", "message", "max_tokens", "temperature")


async def show_models(visit: Visit) -> Context:
    app = await read_app(visit)
    page = await visit.call("ai_models", app_id=app["id"])
    return {
        "app": app,
        "title": "Models",
        "models": [model for model in page["models"] if model["modality"] in ("text", "chat")] or page["models"],
        "typed": {name: visit.form.get(name, "") for name in _FIELDS},
        "answer": None,
        "problem": None,
    }


async def try_model(visit: Visit) -> Context:
    """Sends one request to a model, and shows its answer and its cost."""
    page = dict(await show_models(visit))
    request, began_at = _read_request(page["typed"]), time.monotonic()
    try:
        answer = await visit.call("ai_chat", app_id=visit.parts["app"], **request)
    except BaobabError as error:
        return page | {"problem": f"{error.message} {error.remedy}"}
    message = (answer.get("choices") or [{}])[0].get("message") or {}
    text = message.get("content") or escape_json(message, indent=2)
    usage, took = answer.get("usage") or {}, (time.monotonic() - began_at) * 1000
    return page | {"answer": {"text": str(text), "usage": usage, "took": took, "model": answer.get("model")}}


def _read_request(fields: dict[str, str]) -> dict[str, Any]:
    messages = [{"role": "user", "content": fields["message"]}]
    if fields["system"].strip():
        messages.insert(0, {"role": "system", "content": fields["system"]})
    request: dict[str, Any] = {"messages": messages}
    if fields["model"]:
        request["model"] = fields["model"]
    for name, read in (("max_tokens", int), ("temperature", float)):
        if text := fields[name].strip():
            try:
                request[name] = read(text)
            except ValueError as exc:
                raise refuse_field(name, "Type a number.") from exc
    return request


PAGES = (Page(_PATH, "Models", "models.html", show_models, tab="Models", group="Agents", icon="cpu", rank=40),)
FORMS = (Form(f"{_PATH}/try", try_model, "models.html"),)
