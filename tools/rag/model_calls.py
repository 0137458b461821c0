"""How tools of retrieval call models: as the caller, whose key pays, and within the call that is being made."""

from dataclasses import replace
from typing import Any

from baobab.tools.core import Anonymous, AppKey, Call, Caller
from baobab.tools.core.context import RequestContext


async def ask_model(call: Call, messages: list[dict[str, str]], model: str | None) -> tuple[str, str]:
    """Returns what a model says, and which model it is. Raises the errors of `ai_chat`."""
    # The transaction ends here: none stays open while the model works.
    await call.unit.commit()
    arguments = {"app_id": call.require_app().id, "messages": messages, "model": model}
    tool = call.registry.find("ai_chat")
    answer, _ = await call.registry.run(tool, arguments, paying_caller(call), nested_context(call))
    return answer["choices"][0]["message"]["content"] or "", str(answer["model"])


def nested_context(call: Call) -> RequestContext:
    """Returns the context of a call to a model that this call makes: it waits for no approval, and nothing is
    streamed.
    """
    return replace(call.context, step=None, streams=False, report=None, follow_text=None)


def paying_caller(call: Call) -> Caller:
    """Returns the caller, whose key pays for the model, without its limits: they were checked before this call. For a
    visitor, the app itself pays.
    """
    if isinstance(call.caller, Anonymous):
        return AppKey(call.require_app().id, "visitors")
    caller: Any = call.caller
    paying: Caller = replace(caller, limits=None)
    return paying
