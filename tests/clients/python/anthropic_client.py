"""The Anthropic SDK for Python."""

import checks
from anthropic import Anthropic, BadRequestError, beta_tool

# Lines to paste
client = Anthropic(base_url=checks.BASE, api_key=checks.KEY)
# End of the lines


def ask(*texts: str) -> str:
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
    return client.messages.create(model=checks.MODEL, max_tokens=200, messages=messages).content[0].text


def chat():
    return ask(checks.CHAT)


def stream():
    with client.messages.stream(
        model=checks.MODEL, max_tokens=200, messages=[{"role": "user", "content": checks.CHAT}]
    ) as answer:
        return checks.join_pieces(list(answer.text_stream))


def tools():
    messages = [{"role": "user", "content": checks.TOOL}]
    runner = client.beta.messages.tool_runner(
        model=checks.MODEL, max_tokens=200, messages=messages, tools=[beta_tool(checks.weather)]
    )
    return runner.until_done().content[0].text


def structured():
    messages = [{"role": "user", "content": checks.STRUCTURED}]
    answer = client.messages.parse(model=checks.MODEL, max_tokens=200, messages=messages, output_format=checks.Weather)
    return answer.parsed_output.model_dump()


def turns():
    first = ask(checks.FIRST)
    return f"{first} {ask(checks.FIRST, first, checks.SECOND)}"


def refused():
    messages = [{"role": "user", "content": checks.REFUSED}]
    try:
        # It has no argument for it.
        client.messages.create(model=checks.MODEL, max_tokens=200, messages=messages, extra_body={"temperature": 0.5})
    except BadRequestError as error:
        return str(error)
    raise AssertionError("it is answered")


checks.run(chat, stream, tools, structured, turns, refused)
