"""Recorded Chat Completions, read from the raw JSON: what an answer says, and when two requests mean the same.

Knows nothing of our codec: that is what it is worth. `normal` writes out what the API takes as said, or picks one of two
spellings of one thing; it deletes no key:

    stream                        false when absent; stream_options null then
    content                       a text is one text part; null when absent beside calls
    stop                          a text is a list of one
    tools[].type, tool_choice.type   "function" when absent
    cache_control.ttl             "5m" when absent
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.corpus import Exchange

Json = dict[str, Any]

ROWS = {
    "azure": "azure-chat",
    "bedrock_mantle": "bedrock-mantle-chat",
    "cerebras": "cerebras",
    "crusoe": "crusoe",
    "deepseek": "deepseek",
    "demo": "openai-chat",
    "gateway": "openai-chat",
    "google_openai_compat": "google-openai-compat",
    "groq": "groq",
    "heroku": "heroku",
    "huggingface": "huggingface",
    "mistral": "mistral",
    "ollama": "ollama",
    "openai": "openai-chat",
    "openrouter": "openrouter",
    "snowflake": "snowflake",
    "zai": "zai",
}
"""The row that stands for each provider of the recordings."""

TAGGED = ("cerebras", "crusoe", "groq", "huggingface", "ollama")
"""Whose answers may begin with their reasoning, between tags."""
APART = ("google_openai_compat",)
"""Who counts reasoning only in the total."""
STOPS = {"stop": "done", "tool_calls": "done", "": "done", "length": "length"}
THINK = re.compile(r"\s*<think>(.*?)</think>(.*)", re.DOTALL)


@dataclass
class Said:
    """One answer."""

    id: str = ""
    model: str = ""
    text: str = ""
    reasoning: str = ""
    details: list[Json] = field(default_factory=list)
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    cited: list[tuple[str, str]] = field(default_factory=list)
    finish: str = ""
    usage: tuple[int, int, int, int] = (0, 0, 0, 0)  # input, of it cached; output, of it reasoning
    executed: int = 0

    @property
    def stop(self) -> str:
        """Our word for why it ended."""
        word = STOPS[self.finish]
        return "tools" if word == "done" and self.calls else word


def whole(body: Json, provider: str) -> Said:
    """What an answer's JSON states."""
    choice = body["choices"][0]
    message = choice["message"]
    said = spoken(message, provider)
    said.id, said.model, said.finish = body["id"], body["model"], choice["finish_reason"]
    said.calls = [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls") or []]
    said.cited = [(one["url_citation"]["url"], one["url_citation"]["title"]) for one in message.get("annotations") or []]
    said.executed = len(message.get("executed_tools") or [])
    said.usage = counts(body["usage"], provider)
    return said


def spoken(message: Json, provider: str) -> Said:
    """The words and thoughts of a message, in an answer or in a request."""
    said = Said()
    _content(said, message.get("content"))
    _thoughts(said, message)
    return _untagged(said, provider)


def _content(said: Said, content: Any) -> None:
    parts: list[Json] = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    for part in parts:
        if part["type"] == "thinking":
            said.reasoning += "".join(one["text"] for one in part["thinking"])
        else:
            said.text += part["text"]


def _thoughts(said: Said, message: Json) -> None:
    details = message.get("reasoning_details") or []
    plain = message.get("reasoning_content") or message.get("reasoning") or ""
    said.details += details
    said.reasoning += plain or "".join(one.get("text") or one.get("summary") or "" for one in details)


def _untagged(said: Said, provider: str) -> Said:
    found = THINK.fullmatch(said.text)
    if found and provider in TAGGED:
        said.reasoning, said.text = said.reasoning + found[1], found[2]
    return said


def counts(usage: Json, provider: str) -> tuple[int, int, int, int]:
    """Input, of it cached; output, of it reasoning."""
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or usage.get("cached_tokens") or usage.get("num_cached_tokens") or 0
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    output = usage["completion_tokens"]
    if provider in APART:
        thought = usage["total_tokens"] - usage["prompt_tokens"] - output
        output += thought
    return usage["prompt_tokens"], cached, output, thought


def chunks(stream: bytes) -> list[Json]:
    """The chunks of a recorded stream."""
    lines = stream.decode().replace("\r\n", "\n").split("\n")
    data = [line[5:].strip() for line in lines if line.startswith("data:")]
    return [json.loads(text) for text in data if text != "[DONE]"]


def error_in(stream: bytes) -> Json | None:
    """The error that a stream reports after its 200."""
    return next((chunk["error"] for chunk in chunks(stream) if chunk.get("error")), None)


def streamed(stream: bytes, provider: str) -> Said:
    """What the chunks of a stream add up to."""
    said = Said()
    calls: dict[int, list[str]] = {}
    for chunk in chunks(stream):
        said.id, said.model = said.id or chunk["id"], said.model or chunk["model"]
        usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage")
        if usage:
            said.usage = counts(usage, provider)
        for choice in chunk["choices"]:
            delta = choice["delta"]
            said.finish = choice.get("finish_reason") or said.finish
            _content(said, delta.get("content"))
            _thoughts(said, delta)
            said.cited += [(one["url_citation"]["url"], one["url_citation"]["title"]) for one in delta.get("annotations") or []]
            for call in delta.get("tool_calls") or []:
                known = calls.setdefault(call["index"], [call.get("id", ""), call["function"].get("name", ""), ""])
                known[2] += call["function"].get("arguments") or ""
    said.calls = [(id, name, arguments) for id, name, arguments in calls.values()]
    return _untagged(said, provider)


def answer(exchange: Exchange) -> Said:
    """What a recorded answer says."""
    if exchange.sse is not None:
        return streamed(exchange.sse, exchange.provider)
    assert exchange.response is not None
    return whole(exchange.response, exchange.provider)


# When two requests mean the same.


def normal(body: Json) -> Json:
    """A request in its normal form."""
    full: Json = {"stream": False, "stream_options": None, **body}
    if isinstance(full.get("stop"), str):
        full["stop"] = [full["stop"]]
    if isinstance(full.get("tool_choice"), dict):
        full["tool_choice"] = {"type": "function", **full["tool_choice"]}
    full["messages"] = [_message(message) for message in body["messages"]]
    if "tools" in body:
        full["tools"] = [_tool(tool) for tool in body["tools"]]
    return full


def _message(message: Json) -> Json:
    content = message.get("content")
    if isinstance(content, str) and content:
        content = [{"type": "text", "text": content}]
    if isinstance(content, list):
        content = [_marked(part) for part in content]
    return {**message, "content": content}


def _tool(tool: Json) -> Json:
    if tool.get("type", "function") != "function":
        return tool
    return _marked({"type": "function", **tool, "function": tool["function"]})


def _marked(own: Json) -> Json:
    if not isinstance(own.get("cache_control"), dict):
        return own
    return {**own, "cache_control": {"ttl": "5m", **own["cache_control"]}}
