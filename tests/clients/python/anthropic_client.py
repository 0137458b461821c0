"""The Anthropic SDK for Python."""

from anthropic import Anthropic, beta_tool
from checks import BASE, CHAT, FIRST, KEY, MODEL, SECOND, STRUCTURED, TOOL, joined, run, weather
from pydantic import BaseModel

client = Anthropic(base_url=BASE, api_key=KEY)


class Weather(BaseModel):
    city: str
    degrees: int


def ask(*texts: str) -> str:
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
    return client.messages.create(model=MODEL, max_tokens=200, messages=messages).content[0].text


def chat():
    return ask(CHAT)


def stream():
    with client.messages.stream(model=MODEL, max_tokens=200, messages=[{"role": "user", "content": CHAT}]) as answer:
        return joined(list(answer.text_stream))


def tools():
    messages = [{"role": "user", "content": TOOL}]
    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=200, messages=messages, tools=[beta_tool(weather)]
    )
    return runner.until_done().content[0].text


def structured():
    messages = [{"role": "user", "content": STRUCTURED}]
    answer = client.messages.parse(model=MODEL, max_tokens=200, messages=messages, output_format=Weather)
    return answer.parsed_output.model_dump()


def turns():
    first = ask(FIRST)
    return f"{first} {ask(FIRST, first, SECOND)}"


run(chat, stream, tools, structured, turns)
