"""smolagents: its model, and an agent whose model calls the tools of its MCP client."""

import checks
from smolagents import MCPClient, OpenAIModel, ToolCallingAgent, tool

model = OpenAIModel(checks.MODEL, api_base=checks.V1, api_key=checks.KEY)
server = {"url": checks.MCP, "transport": "streamable-http", "headers": checks.HEADERS}


def user(text):
    return {"role": "user", "content": text}


def ask(text, tools):
    agent = ToolCallingAgent(tools, model, max_steps=1)
    agent.run(text)
    # What its model is told next: results as words of the user, which the built-in model does not repeat.
    return str([message.content for message in agent.write_memory_to_messages()])


def call(check):
    with MCPClient(server, structured_output=False) as served_tools:
        # It has the model name every argument, those that may be left out too.
        (tool,) = (served_tool for served_tool in served_tools if served_tool.name == check.tool)
        defaults = {name: schema.get("default") for name, schema in tool.inputs.items()}
        return ask(check._replace(arguments={**defaults, **check.arguments}).command, served_tools)


def chat():
    return model([user(checks.CHAT)]).content


def stream():
    return checks.join_pieces([piece.content for piece in model.generate_stream([user(checks.CHAT)]) if piece.content])


@tool
def weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: Its name.
    """
    return checks.weather(city)


def tools():
    return ask(checks.TOOL, [weather])


def structured():
    schema = {"name": "weather", "schema": checks.Weather.model_json_schema()}
    return model([user(checks.STRUCTURED)], response_format={"type": "json_schema", "json_schema": schema}).content


def turns():
    first = model([user(checks.FIRST)])
    messages = [user(checks.FIRST), {"role": "assistant", "content": first.content}, user(checks.SECOND)]
    return f"{first.content} {model(messages).content}"


def connect():
    with MCPClient(server, structured_output=False) as served_tools:
        return [served_tool.name for served_tool in served_tools]


checks.run(chat, stream, tools, structured, turns, connect, call=call)
