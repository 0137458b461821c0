"""The OpenAI SDK for Python."""

import json

import checks
from openai import BadRequestError, OpenAI

# Lines to paste
client = OpenAI(base_url=checks.V1, api_key=checks.KEY)
# End of the lines
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


def chat():
    answer = client.chat.completions.create(model=checks.MODEL, messages=[{"role": "user", "content": checks.CHAT}])
    return answer.choices[0].message.content


def stream():
    chunks = client.chat.completions.create(
        model=checks.MODEL, messages=[{"role": "user", "content": checks.CHAT}], stream=True
    )
    return checks.join_pieces([text for chunk in chunks if chunk.choices and (text := chunk.choices[0].delta.content)])


def tools():
    messages = [{"role": "user", "content": checks.TOOL}]
    message = client.chat.completions.create(model=checks.MODEL, messages=messages, tools=TOOLS).choices[0].message
    messages.append(message)
    for call in message.tool_calls:
        content = checks.weather(**json.loads(call.function.arguments))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": content}]
    return client.chat.completions.create(model=checks.MODEL, messages=messages, tools=TOOLS).choices[0].message.content


def structured():
    messages = [{"role": "user", "content": checks.STRUCTURED}]
    answer = client.chat.completions.parse(model=checks.MODEL, messages=messages, response_format=checks.Weather)
    return answer.choices[0].message.parsed.model_dump()


def turns():
    first = client.responses.create(model=checks.MODEL, input=checks.FIRST)
    second = client.responses.create(model=checks.MODEL, input=checks.SECOND, previous_response_id=first.id)
    return f"{first.output_text} {second.output_text}"


def request_refusal():
    messages = [{"role": "user", "content": checks.REFUSED}]
    try:
        client.chat.completions.create(model=checks.MODEL, messages=messages, temperature=0.5)
    except BadRequestError as error:
        return error
    raise AssertionError("it is answered")


def refused():
    return str(request_refusal())


def param():
    return f"the field is {request_refusal().param}."


def embeddings():
    return f"{len(client.embeddings.create(model='baobab/minilm-l6-v2', input='Hello').data[0].embedding)} numbers"


checks.run(chat, stream, tools, structured, turns, refused, param, embeddings)
