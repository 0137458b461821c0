"""Writes the items of a streamed response: reasoning, messages and calls of tools."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from baobab.runtime.gateway.reasoning import ReasoningCollector, seal_reasoning
from baobab.runtime.gateway.wires import chunks
from baobab.runtime.gateway.wires.wire import AnswerMetadata

Event = dict[str, Any]

_MESSAGE = {"type": "message", "role": "assistant"}
_EMPTY: dict[str, dict[str, Any]] = {
    "reasoning_text": {"type": "reasoning_text", "text": ""},
    "output_text": {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    "refusal": {"type": "refusal", "refusal": ""},
}


class ItemWriter:
    """Turns messages or deltas into events. One item is open at a time; the next one closes it.

    whole: the items so far. tool_names: the group and name of the tools in groups, by the name that the model uses.
    """

    def __init__(
        self, metadata: AnswerMetadata, tool_names: Mapping[str, tuple[str, str]] = MappingProxyType({})
    ) -> None:
        self.whole: list[dict[str, Any]] = []
        self._item_metadata = metadata
        self._tool_names = tool_names
        self._open: object = None
        self._calls: dict[object, int] = {}
        self._collector = ReasoningCollector()

    def write_delta(self, message: dict[str, Any]) -> list[Event]:
        events: list[Event] = []
        self._collector.add(message)
        if thought_text := chunks.get_thought(message):
            events += self._write_text("reasoning_text", thought_text)
        content = message.get("content")
        if isinstance(content, str) and content:
            events += self._write_text("output_text", content)
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            events += self._write_text("refusal", refusal)
        for number, call in enumerate(chunks.get_calls(message)):
            events += self._write_call(call.get("index", number), call)
        return events

    def close_item(self) -> list[Event]:
        """Returns the events that end the open item."""
        if self._open is None:
            return []
        self._open = None
        index, item = len(self.whole) - 1, self.whole[-1]
        item["status"] = "completed"
        if item["type"] == "reasoning" and "encrypted_content" not in item:
            # The shown text is in there, too: not all clients send it back.
            item["encrypted_content"] = seal_reasoning(self._collector.take(), (), self._item_metadata.origin)
        at = {"output_index": index, "item_id": item["id"]}
        item_done = {"type": "response.output_item.done", "output_index": index, "item": item}
        if item["type"] == "function_call":
            call_fields = {"name": item["name"], "arguments": item["arguments"]}
            return [{"type": "response.function_call_arguments.done", **at, **call_fields}, item_done]
        if item["type"] == "custom_tool_call":
            return [{"type": "response.custom_tool_call_input.done", **at, "input": item["input"]}, item_done]
        if not item["content"]:
            return [item_done]
        part = item["content"][0]
        at["content_index"] = 0
        text_done = {"type": f"response.{part['type']}.done", **at, **_text_fields(part)}
        return [text_done, {"type": "response.content_part.done", **at, "part": part}, item_done]

    def end(self) -> list[Event]:
        """Returns the events that end the items."""
        return [*self.close_item(), *(self._write_hidden(()) if self._calls else ())]

    def _write_hidden(self, calls: Sequence[dict[str, Any]]) -> list[Event]:
        """Writes an item with the reasoning since the last one that is not shown, and the signatures of calls."""
        sealed_reasoning = seal_reasoning(self._collector.take(), calls, self._item_metadata.origin)
        if not sealed_reasoning:
            return []
        fields = {"type": "reasoning", "summary": [], "content": [], "encrypted_content": sealed_reasoning}
        return [self._open_item("hidden", self._new_item("rs", **fields)), *self.close_item()]

    def _write_text(self, kind: str, text: str) -> list[Event]:
        """Begins or continues a text: reasoning, the answer or a refusal."""
        events: list[Event] = []
        if is_new_item := self._open != kind:
            events = self.close_item()
            thinks = kind == "reasoning_text"
            item_fields: dict[str, Any] = {"type": "reasoning", "summary": []} if thinks else _MESSAGE
            item = self._new_item("rs" if thinks else "msg", **item_fields, content=[dict(_EMPTY[kind])])
            events.append(self._open_item(kind, item))
        item, index = self.whole[-1], len(self.whole) - 1
        part, at = item["content"][0], {"output_index": index, "item_id": item["id"], "content_index": 0}
        if is_new_item:
            events.append({"type": "response.content_part.added", **at, "part": dict(part)})
        part["refusal" if kind == "refusal" else "text"] += text
        logprob_fields: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        return [*events, {"type": f"response.{kind}.delta", **at, "delta": text, **logprob_fields}]

    def _write_call(self, number: object, call: dict[str, Any]) -> list[Event]:
        events: list[Event] = []
        custom = call.get("custom")
        if number not in self._calls:
            events = [*self.close_item(), *self._write_hidden((call,))]
            call_fields = {"call_id": str(call.get("id"))}
            if isinstance(custom, dict):
                name_fields = self._name_fields(str(custom.get("name")))
                item = self._new_item("ctc", type="custom_tool_call", **call_fields, **name_fields, input="")
            else:
                name_fields = self._name_fields(chunks.get_function(call)[0])
                item = self._new_item("fc", type="function_call", **call_fields, **name_fields, arguments="")
            events.append(self._open_item(("call", number), item))
            self._calls[number] = len(self.whole) - 1
        index = self._calls[number]
        item = self.whole[index]
        field, kind = "arguments", "function_call_arguments"
        text = chunks.get_function(call)[1]
        if isinstance(custom, dict):
            field, kind, text = "input", "custom_tool_call_input", str(custom.get("input") or "")
        if text:
            item[field] += text
            at = {"output_index": index, "item_id": item["id"]}
            events.append({"type": f"response.{kind}.delta", **at, "delta": text})
        return events

    def _name_fields(self, name: str) -> dict[str, str]:
        group, tool_name = self._tool_names.get(name, ("", name))
        return {"name": tool_name, "namespace": group} if group else {"name": name}

    def _new_item(self, prefix: str, **fields: Any) -> dict[str, Any]:
        return {"id": f"{prefix}_{self._item_metadata.id}{len(self.whole):02x}", "status": "in_progress", **fields}

    def _open_item(self, source: object, item: dict[str, Any]) -> Event:
        self._open = source
        self.whole.append(item)
        item_at_start = {**item, "content": []} if "content" in item else dict(item)
        return {"type": "response.output_item.added", "output_index": len(self.whole) - 1, "item": item_at_start}


def _text_fields(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "refusal":
        return {"refusal": part["refusal"]}
    return {"text": part["text"], **({"logprobs": []} if part["type"] == "output_text" else {})}
