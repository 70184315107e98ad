"""The vendors' SDKs as drivers of a scripted conversation: each plays the client with its own calls, whole or streamed.

The SDKs are imported by name on first use: they take seconds to load, and the type checker need not read them.
"""

import json
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from tests.testing.conversations import Conversation, Json, Outcome

SECONDS = 120


def anthropic(url: str, key: str = "test-key") -> Any:
    module = import_module("anthropic")
    return module.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=SECONDS)


def openai(url: str, key: str = "test-key") -> Any:
    module = import_module("openai")
    return module.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=SECONDS)


@cache
def _genai() -> Any:
    return import_module("google.genai")


def gemini(url: str, key: str = "test-key") -> Any:
    return _genai().Client(api_key=key, http_options={"base_url": url, "timeout": SECONDS * 1000})


def play_anthropic(client: Any, model: str, conversation: Conversation, *, streamed: bool) -> Outcome:
    """Messages: the whole content of each answer goes back as it came."""
    outcome, messages = Outcome(), list[Json]()
    tools = [{"name": t.name, "description": t.description, "input_schema": t.parameters} for t in conversation.tools]
    options: Json = {"model": model, "max_tokens": 1000, "system": conversation.system}
    if tools:
        options["tools"] = tools
    if conversation.thinking:
        options["thinking"] = {"type": "adaptive", "display": "summarized"}
    if conversation.schema:
        options["output_config"] = {"format": {"type": "json_schema", "schema": conversation.schema}}

    def ask() -> Any:
        if not streamed:
            return client.messages.create(messages=messages, **options)
        with client.messages.stream(messages=messages, **options) as stream:
            told = "".join(event.text for event in stream if event.type == "text")
            final = stream.get_final_message()
        assert told == "".join(block.text for block in final.content if block.type == "text")
        return final

    for said in conversation.inputs:
        messages.append({"role": "user", "content": said})
        while True:
            answer = ask()
            usage = answer.usage
            read = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
            outcome.usage.append((read, usage.output_tokens))
            outcome.thoughts += [block.thinking for block in answer.content if block.type == "thinking"]
            content = [_as_request(block) for block in answer.content]
            messages.append({"role": "assistant", "content": content})
            calls = [block for block in answer.content if block.type == "tool_use"]
            assert answer.stop_reason == ("tool_use" if calls else "end_turn")
            if not calls:
                outcome.texts.append("".join(block.text for block in answer.content if block.type == "text"))
                break
            results = [(call.id, _run(conversation, outcome, call.name, call.input)) for call in calls]
            results_ = [{"type": "tool_result", "tool_use_id": call, "content": text} for call, text in results]
            messages.append({"role": "user", "content": results_})
    return outcome


def _as_request(block: Any) -> Json:
    sent: Json = block.model_dump(exclude_none=True, mode="json", exclude={"parsed_output"})
    return sent


def play_responses(client: Any, model: str, conversation: Conversation, *, streamed: bool) -> Outcome:
    """Responses, stateless: all items of each answer go back as they came."""
    outcome, items = Outcome(), list[Json]()
    tools = [
        {"type": "function", "name": t.name, "description": t.description, "parameters": t.parameters, "strict": True}
        for t in conversation.tools
    ]
    options: Json = {"model": model, "instructions": conversation.system, "store": False}
    options["include"] = ["reasoning.encrypted_content"]
    if tools:
        options["tools"] = tools
    if conversation.thinking:
        options["reasoning"] = {"effort": "low", "summary": "auto"}
    if conversation.schema:
        form = {"type": "json_schema", "name": "answer", "schema": conversation.schema, "strict": True}
        options["text"] = {"format": form}

    def ask() -> Any:
        if not streamed:
            return client.responses.create(input=items, **options)
        with client.responses.stream(input=items, **options) as stream:
            told = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
        assert told == final.output_text
        return final

    for said in conversation.inputs:
        items.append({"role": "user", "content": said})
        while True:
            answer = ask()
            assert answer.status == "completed"
            outcome.usage.append((answer.usage.input_tokens, answer.usage.output_tokens))
            shown = [part.text for item in answer.output if item.type == "reasoning" for part in item.summary]
            outcome.thoughts += shown
            items += [_as_item(item) for item in answer.output]
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                outcome.texts.append(answer.output_text)
                break
            for call in calls:
                text = _run(conversation, outcome, call.name, json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": text})
    return outcome


def _as_item(item: Any) -> Json:
    sent: Json = item.model_dump(exclude_none=True, mode="json", exclude={"parsed_arguments": True})
    for part in sent.get("content", ()):
        part.pop("parsed", None)
    return sent


def play_chat(client: Any, model: str, conversation: Conversation, *, streamed: bool) -> Outcome:
    """Chat Completions, with the reasoning of each tool turn sent back in the field it came in."""
    outcome = Outcome()
    messages: list[Json] = [{"role": "system", "content": conversation.system}]
    options = {"model": model, **_chat_options(conversation)}

    def ask() -> Any:
        if not streamed:
            return client.chat.completions.create(messages=messages, **options)
        told = ""
        with client.chat.completions.stream(messages=messages, stream_options={"include_usage": True}, **options) as stream:
            for event in stream:
                told += event.delta if event.type == "content.delta" else ""
            final = stream.get_final_completion()
        assert told == (final.choices[0].message.content or "")
        return final

    for said in conversation.inputs:
        messages.append({"role": "user", "content": said})
        while True:
            answer = ask()
            message = answer.choices[0].message
            outcome.usage.append((answer.usage.prompt_tokens, answer.usage.completion_tokens))
            sent = message.model_dump(exclude_none=True, mode="json")
            thought = sent.get("reasoning_content")
            outcome.thoughts += [thought] if thought else []
            kept = {name: value for name, value in sent.items() if name in ("role", "content", "reasoning_content")}
            calls = message.tool_calls or []
            assert answer.choices[0].finish_reason == ("tool_calls" if calls else "stop")
            if calls:
                kept["tool_calls"] = [_as_call(call) for call in calls]
            messages.append(kept)
            if not calls:
                outcome.texts.append(message.content)
                break
            for call in calls:
                text = _run(conversation, outcome, call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    return outcome


def _chat_options(conversation: Conversation) -> Json:
    options: Json = {}
    if conversation.tools:
        described = [
            {"name": t.name, "description": t.description, "parameters": t.parameters, "strict": True}
            for t in conversation.tools
        ]
        options["tools"] = [{"type": "function", "function": function} for function in described]
    if conversation.schema:
        form = {"name": "answer", "schema": conversation.schema, "strict": True}
        options["response_format"] = {"type": "json_schema", "json_schema": form}
    return options


def _as_call(call: Any) -> Json:
    named = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": named}


def play_gemini(client: Any, model: str, conversation: Conversation, *, streamed: bool) -> Outcome:
    """generateContent: parts go back as they came, signatures on the parts that had them."""
    outcome, types = Outcome(), _genai().types
    contents: list[Any] = []
    config: Json = {"system_instruction": conversation.system, "automatic_function_calling": {"disable": True}}
    if conversation.tools:
        declared = [
            {"name": t.name, "description": t.description, "parameters_json_schema": t.parameters} for t in conversation.tools
        ]
        config["tools"] = [{"function_declarations": declared}]
    if conversation.thinking:
        config["thinking_config"] = {"include_thoughts": True}
    if conversation.schema:
        config |= {"response_mime_type": "application/json", "response_json_schema": conversation.schema}

    def ask() -> tuple[list[Any], Any]:
        if not streamed:
            answer = client.models.generate_content(model=model, contents=contents, config=config)
            return list(answer.candidates[0].content.parts), answer
        parts, last = list[Any](), None
        for chunk in client.models.generate_content_stream(model=model, contents=contents, config=config):
            parts += chunk.candidates[0].content.parts or []
            last = chunk
        return parts, last

    for said in conversation.inputs:
        contents.append(types.Content(role="user", parts=[types.Part(text=said)]))
        while True:
            parts, last = ask()
            assert last.candidates[0].finish_reason.name == "STOP"
            usage = last.usage_metadata
            output = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
            outcome.usage.append((usage.prompt_token_count, output))
            thought = "".join(part.text for part in parts if part.thought)
            outcome.thoughts += [thought] if thought else []
            kept = [part for part in parts if part.text != "" or part.thought_signature]
            contents.append(types.Content(role="model", parts=kept))
            calls = [part.function_call for part in parts if part.function_call]
            if not calls:
                outcome.texts.append("".join(part.text or "" for part in parts if not part.thought))
                break
            results = [(call, _run(conversation, outcome, call.name, call.args)) for call in calls]
            contents.append(types.Content(role="user", parts=[_as_result(types, call, text) for call, text in results]))
    return outcome


def _as_result(types: Any, call: Any, text: str) -> Any:
    response = types.FunctionResponse(id=call.id, name=call.name, response={"output": text})
    return types.Part(function_response=response)


def _run(conversation: Conversation, outcome: Outcome, name: str, arguments: Json) -> str:
    outcome.calls.append((name, dict(arguments)))
    tool = next(tool for tool in conversation.tools if tool.name == name)
    return tool.run(arguments)


CLIENTS: dict[str, Callable[..., Any]] = {
    "anthropic_messages": anthropic,
    "openai_responses": openai,
    "openai_chat": openai,
    "gemini": gemini,
}
"""Each makes a client, to be used in a `with`."""

PLAYERS: dict[str, Callable[..., Outcome]] = {
    "anthropic_messages": play_anthropic,
    "openai_responses": play_responses,
    "openai_chat": play_chat,
    "gemini": play_gemini,
}
