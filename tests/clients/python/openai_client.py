"""The OpenAI SDK for Python."""

import json

from checks import APP, BASE, CHAT, FIRST, KEY, MODEL, SECOND, STRUCTURED, TOOL, joined, run, weather
from openai import OpenAI
from pydantic import BaseModel

client = OpenAI(base_url=f"{BASE}/v1/{APP}", api_key=KEY)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


class Weather(BaseModel):
    city: str
    degrees: int


def chat():
    answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": CHAT}])
    return answer.choices[0].message.content


def stream():
    chunks = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": CHAT}], stream=True)
    return joined([text for chunk in chunks if chunk.choices and (text := chunk.choices[0].delta.content)])


def tools():
    messages = [{"role": "user", "content": TOOL}]
    asked = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message
    messages.append(asked)
    for call in asked.tool_calls:
        content = weather(**json.loads(call.function.arguments))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": content}]
    return client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message.content


def structured():
    messages = [{"role": "user", "content": STRUCTURED}]
    answer = client.chat.completions.parse(model=MODEL, messages=messages, response_format=Weather)
    return answer.choices[0].message.parsed.model_dump()


def turns():
    first = client.responses.create(model=MODEL, input=FIRST)
    second = client.responses.create(model=MODEL, input=SECOND, previous_response_id=first.id)
    return f"{first.output_text} {second.output_text}"


def embeddings():
    return f"{len(client.embeddings.create(model='baobab/minilm-l6-v2', input='Hello').data[0].embedding)} numbers"


run(chat, stream, tools, structured, turns, embeddings)
