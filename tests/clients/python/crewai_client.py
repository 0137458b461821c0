"""CrewAI: its model, and an agent whose model calls the tools of its MCP adapter."""

import checks
from crewai import LLM, Agent
from crewai.tools import tool
from crewai_tools import MCPServerAdapter

model = LLM(model=checks.MODEL, provider="openai", base_url=checks.V1, api_key=checks.KEY)
server = {"url": checks.MCP, "transport": "streamable-http", "headers": checks.HEADERS}


async def ask(text, tools):
    agent = Agent(role="matrix", goal="Do what is asked.", backstory="None.", llm=model, tools=tools)
    # It puts words of its own before the text; a command begins a line.
    return (await agent.kickoff_async(f"\n{text}")).raw


async def call(check):
    with MCPServerAdapter(server) as served_tools:
        return await ask(check.command, list(served_tools))


def chat():
    return model.call(checks.CHAT)


async def tools():
    return await ask(checks.TOOL, [tool("weather")(checks.weather)])


def structured():
    return model.call(checks.STRUCTURED, response_model=checks.Weather).model_dump()


def turns():
    messages = [{"role": "user", "content": checks.FIRST}]
    first = model.call(messages)
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": checks.SECOND}]
    return f"{first} {model.call(messages)}"


def connect():
    with MCPServerAdapter(server) as served_tools:
        return [tool.name for tool in served_tools]


checks.run(chat, tools, structured, turns, connect, call=call)
