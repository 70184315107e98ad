"""Lets one library talk to the server of `agents.py` and measures its CPU. Run with the Python of the library's environment.

Uses the standard library and the library only. Reads one JSON order a line from standard input and answers each with a line,
so that several libraries can be measured in turns. An action streams one answer, or runs an agent to its end, and tells how
many deltas or tool calls there were.
"""

import asyncio
import gc
import json
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from time import perf_counter, process_time
from typing import Any

__all__ = ["KEY", "PROMPT", "SYSTEM", "Action", "Make", "obey"]

KEY = "none"
MODELS = {
    "anthropic_messages": "claude-sonnet-4-5",
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
}
PROMPT = "Look things up until you know."
SYSTEM = "You are a librarian. Be brief."
TOOL, ABOUT, ARGUMENT, RESULT = sys.argv[2:6] if len(sys.argv) > 5 else ("lookup", "Look an item up.", "item", "It is there.")
SCHEMA = {"type": "object", "properties": {ARGUMENT: {"type": "string"}}, "required": [ARGUMENT], "additionalProperties": False}
MANY = 1_000_000

Action = Callable[[], Awaitable[int]]
Make = Callable[[str, str], Awaitable[Action]]
"""From a wire and an address to what is measured."""


# The vendors' SDKs: their plain streams, and the loop that everybody writes around them.


async def anthropic_text(wire: str, base: str) -> Action:
    client = import_module("anthropic").AsyncAnthropic(api_key=KEY, base_url=base, max_retries=0)
    asked = {"model": MODELS[wire], "max_tokens": 4096, "messages": [{"role": "user", "content": PROMPT}], "stream": True}

    async def act() -> int:
        pieces = []
        async for event in await client.messages.create(**asked):
            if event.type == "content_block_delta":
                pieces.append(event.delta.text)
        return len(pieces)

    return act


async def anthropic_loop(wire: str, base: str) -> Action:
    client = import_module("anthropic").AsyncAnthropic(api_key=KEY, base_url=base, max_retries=0)
    tools = [{"name": TOOL, "description": ABOUT, "input_schema": SCHEMA}]
    asked = {"model": MODELS[wire], "max_tokens": 4096, "system": SYSTEM}

    async def act() -> int:
        said: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}]
        count = 0
        while True:
            reply = await client.messages.create(**asked, messages=said, tools=tools)
            said.append({"role": "assistant", "content": reply.content})
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                return count
            count += len(calls)
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT} for call in calls]
            said.append({"role": "user", "content": results})

    return act


async def openai_text(wire: str, base: str) -> Action:
    client = import_module("openai").AsyncOpenAI(api_key=KEY, base_url=f"{base}/v1", max_retries=0)
    asked = [{"role": "user", "content": PROMPT}]

    async def chat() -> int:
        pieces = []
        usage = {"include_usage": True}
        chunks = await client.chat.completions.create(model=MODELS[wire], messages=asked, stream=True, stream_options=usage)
        async for chunk in chunks:
            if chunk.choices and chunk.choices[0].delta.content:
                pieces.append(chunk.choices[0].delta.content)
        return len(pieces)

    async def responses() -> int:
        pieces = []
        async for event in await client.responses.create(model=MODELS[wire], input=asked, stream=True):
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
        return len(pieces)

    return chat if wire == "openai_chat" else responses


async def openai_loop(wire: str, base: str) -> Action:
    client = import_module("openai").AsyncOpenAI(api_key=KEY, base_url=f"{base}/v1", max_retries=0)
    function = {"name": TOOL, "description": ABOUT, "parameters": SCHEMA}
    system = {"role": "system", "content": SYSTEM}

    async def chat() -> int:
        said: list[Any] = [system, {"role": "user", "content": PROMPT}]
        tools = [{"type": "function", "function": function}]
        count = 0
        while True:
            reply = (await client.chat.completions.create(model=MODELS[wire], messages=said, tools=tools)).choices[0].message
            said.append(reply)
            if not reply.tool_calls:
                return count
            count += len(reply.tool_calls)
            said += [{"role": "tool", "tool_call_id": call.id, "content": RESULT} for call in reply.tool_calls]

    async def responses() -> int:
        said: list[Any] = [{"role": "user", "content": PROMPT}]
        tools = [{"type": "function", "strict": True, **function}]
        count = 0
        while True:
            reply = await client.responses.create(model=MODELS[wire], input=said, tools=tools, instructions=SYSTEM)
            said += reply.output
            calls = [item for item in reply.output if item.type == "function_call"]
            if not calls:
                return count
            count += len(calls)
            said += [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT} for call in calls]

    return chat if wire == "openai_chat" else responses


# pydantic-ai: its agent, run and watched.


def _pydantic_agent(wire: str, base: str) -> Any:
    kind = "anthropic" if wire == "anthropic_messages" else "openai"
    models, providers = import_module(f"pydantic_ai.models.{kind}"), import_module(f"pydantic_ai.providers.{kind}")
    if kind == "anthropic":
        model = models.AnthropicModel(MODELS[wire], provider=providers.AnthropicProvider(api_key=KEY, base_url=base))
    else:
        made = models.OpenAIChatModel if wire == "openai_chat" else models.OpenAIResponsesModel
        model = made(MODELS[wire], provider=providers.OpenAIProvider(api_key=KEY, base_url=f"{base}/v1"))
    return import_module("pydantic_ai").Agent(model, system_prompt=SYSTEM)


async def pydantic_text(wire: str, base: str) -> Action:
    agent = _pydantic_agent(wire, base)
    kinds = import_module("pydantic_ai.messages")

    async def act() -> int:
        count = 0
        async with agent.iter(PROMPT) as run:
            async for node in run:
                if agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as events:
                        async for event in events:
                            count += isinstance(event, kinds.PartDeltaEvent | kinds.PartStartEvent)
        return count

    return act


async def pydantic_loop(wire: str, base: str) -> Action:
    agent = _pydantic_agent(wire, base)
    limits = import_module("pydantic_ai.usage").UsageLimits(request_limit=None)
    count = 0

    async def lookup(item: str) -> str:
        """Look an item up."""
        nonlocal count
        count += bool(item)
        return RESULT

    agent.tool_plain(lookup)

    async def act() -> int:
        before = count
        await agent.run(PROMPT, usage_limits=limits)
        return count - before

    return act


# ThinHarness: whole answers only, tracing off.


def _thin_harness(wire: str, base: str, handler: Callable[[Any], Awaitable[str]]) -> Any:
    thin, tools = import_module("thinharness"), import_module("thinharness.tools.base")
    arguments = type("Arguments", (tools.StrictArgs,), {"__annotations__": {ARGUMENT: str}})
    spec = thin.ToolSpec(name=TOOL, description=ABOUT, parameters=arguments, handler=handler)
    names = {"anthropic_messages": "anthropic", "openai_responses": "openai", "openai_chat": "openrouter"}
    config = thin.HarnessConfig(
        model=f"{names[wire]}:{MODELS[wire]}",
        base_url=f"{base}/v1",
        api_key=KEY,
        system_prompt=SYSTEM,
        max_model_requests=MANY,
        local_tracing=False,
        request_retries=0,
    )
    return thin.Harness(config, tools=[spec])


async def thin_loop(wire: str, base: str) -> Action:
    count = 0

    async def handler(arguments: Any) -> str:
        nonlocal count
        count += bool(arguments.item)
        return RESULT

    harness = _thin_harness(wire, base, handler)

    async def act() -> int:
        before = count
        await harness.run(PROMPT)
        return count - before

    return act


PEERS: dict[str, dict[str, Make]] = {
    "anthropic": {"text": anthropic_text, "loop": anthropic_loop},
    "openai": {"text": openai_text, "loop": openai_loop},
    "pydantic-ai": {"text": pydantic_text, "loop": pydantic_loop},
    "thinharness": {"loop": thin_loop},
}


# What all of them, and ours, are measured with.


async def obey(makes: Mapping[str, Make], settle: Callable[[], None] = lambda: None) -> None:
    """Carry out orders until there are no more. An order names what to do, the wire, the address, and how often.

    `settle` waits for what an action leaves to another thread: its CPU counts for that action, and not for the next one.
    """
    made: dict[tuple[str, str, str], Action] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        key = (order["what"], order["wire"], order["base"])
        try:
            if key not in made:
                made[key] = await makes[order["what"]](order["wire"], order["base"])
                await made[key]()
            said: dict[str, object] = await _measured(made[key], order["times"], settle)
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"[:300].replace("\n", " ")}
        print(json.dumps(said), flush=True)


async def _measured(action: Action, times: int, settle: Callable[[], None]) -> dict[str, object]:
    """CPU and wall seconds of one action, and what it counted."""
    settle()
    gc.collect()
    began, start = perf_counter(), process_time()
    for _ in range(times):
        count = await action()
    wall = perf_counter() - began
    settle()
    return {"cpu": (process_time() - start) / times, "wall": wall / times, "count": count}


def main() -> None:
    """Serve the library that the first argument names."""
    warnings.simplefilter("ignore")
    asyncio.run(obey(PEERS[sys.argv[1]]))


if __name__ == "__main__":
    main()
