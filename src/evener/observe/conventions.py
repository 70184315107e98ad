"""The names of OpenTelemetry's GenAI semantic conventions, in one place: span names, attributes, message shapes. Pure.

The conventions are in development (repository semantic-conventions-genai), and no package has the present names, so they are
defined here. Tokens written to a cache have two spellings, and each backend reads one of them: both are given.
"""

import string
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, get_args
from urllib.parse import urlsplit

import msgspec

from evener.transcript.ask import ModelSettings, ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    Remote,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.message import Message
from evener.transcript.reply import StopReason, Usage

Attribute = str | int | float | bool | tuple[str, ...]
SpanKind = Literal["agent", "model", "tool", "retry", "approval", "compaction"]

OPERATIONS: Mapping[SpanKind, str] = {
    "agent": "invoke_agent",
    "model": "chat",
    "tool": "execute_tool",
    "retry": "retry",
    "approval": "approval",
    "compaction": "compaction",
}

PROVIDERS: Mapping[str, str] = {
    "anthropic": "anthropic",
    "claude": "anthropic",
    "openai": "openai",
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "foundry": "azure.ai.openai",
    "deepseek": "deepseek",
    "groq": "groq",
    "mistral": "mistral_ai",
    "kimi": "moonshot_ai",
    "xai": "x_ai",
    "perplexity": "perplexity",
    "cohere": "cohere",
}
"""The first word of our rows' names, and the well-known values of `gen_ai.provider.name`. Others go by their own name."""

FINISHES: Mapping[StopReason, str] = {
    "done": "stop",
    "stop_sequence": "stop",
    "tools": "tool_call",
    "length": "length",
    "context_full": "length",
    "refusal": "content_filter",
}


MODALITIES = ("image", "video", "audio", "document")


def name_span(kind: SpanKind, what: str) -> str:
    """Return the name of a span: `chat gpt-5`, `execute_tool search`."""
    return f"{OPERATIONS[kind]} {what}".rstrip()


def provider_name(model: str) -> str:
    """Return the provider in a model string (`provider:model`), as the conventions spell it."""
    row = model.partition(":")[0]
    if row in ("google-vertex",):
        return "gcp.vertex_ai"
    return PROVIDERS.get(row.partition("-")[0], row)


def finish_reason(reason: StopReason) -> str:
    """Return why a model stopped, in the conventions' words where they have one."""
    return FINISHES.get(reason, reason)


FINISH_REASONS: Mapping[StopReason, tuple[str]] = {reason: (finish_reason(reason),) for reason in get_args(StopReason)}
"""The same as the attribute has it."""


def model_attributes(model: str) -> dict[str, Attribute]:
    """Return who is asked."""
    return {
        "gen_ai.operation.name": OPERATIONS["model"],
        "gen_ai.provider.name": provider_name(model),
        "gen_ai.request.model": model.partition(":")[2] or model,
        "gen_ai.request.stream": True,
    }


def asked_attributes(model: str) -> dict[str, Attribute]:
    """Return the attributes of a model that was called outside of the conversation, to write a summary."""
    if not model:
        return {}
    return {"gen_ai.provider.name": provider_name(model), "gen_ai.request.model": model.partition(":")[2] or model}


def settings_attributes(settings: ModelSettings) -> dict[str, Attribute]:
    """Return the settings of a run, those that were given."""
    found: dict[str, Attribute | None] = {
        "gen_ai.request.max_tokens": settings.max_output_tokens,
        "gen_ai.request.temperature": settings.temperature,
        "gen_ai.request.top_p": settings.top_p,
        "gen_ai.request.top_k": settings.top_k,
        "gen_ai.request.seed": settings.seed,
        "gen_ai.request.reasoning.level": settings.effort,
        "gen_ai.request.stop_sequences": tuple(settings.stop) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def origin_attributes(origin: Origin) -> dict[str, Attribute]:
    """Return who answered: the model, and the host and port of its address."""
    found: dict[str, Attribute] = {"gen_ai.response.model": origin.model} if origin.model else {}
    return found | _server_attributes(origin.endpoint)


@lru_cache(64)
def _server_attributes(endpoint: str) -> dict[str, Attribute]:
    try:
        address = urlsplit(endpoint)
        port = address.port or (80 if address.scheme == "http" else 443)
    except ValueError:  # no address: a log can hold any text
        return {}
    return {"server.address": address.hostname, "server.port": port} if address.hostname else {}


def add_usage(found: dict[str, Attribute], usage: Usage) -> None:
    """Add the tokens of one call, or of many. Input includes what was read from and written to the cache."""
    found["gen_ai.usage.input_tokens"] = usage.input_total
    found["gen_ai.usage.output_tokens"] = usage.output_total
    if usage.cache_read:
        found["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read
    if usage.cache_write:
        found["gen_ai.usage.cache_write.input_tokens"] = usage.cache_write
        found["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write
    if usage.reasoning:
        found["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning


# What was said.

LONGEST = 32_768
"""Characters of one text in a span."""
WORD = 4_096
KEYS = f"{string.ascii_letters}{string.digits}!#$%*+-./=?@\\^_`~"
"""What keys are made of."""


def cut_text(text: str, most: int = LONGEST) -> str:
    """Return a text that is not too long. It is cut between two words: half a key would not be known for one."""
    if len(text) <= most:
        return text
    head = text[:most]
    space = max(head.rfind(" ", -WORD), head.rfind("\n", -WORD))
    kept = head[:space] if space >= 0 else head.rstrip(KEYS)
    return f"{kept}... ({len(text):,} characters)"


def describe_messages(messages: Iterable[Message]) -> str:
    """Return messages as `gen_ai.input.messages` has them. Results have the role `tool`."""
    found: list[dict[str, object]] = []
    for message in messages:
        results = [block for block in message.blocks if isinstance(block, ToolResult)]
        others = [block for block in message.blocks if not isinstance(block, ToolResult)]
        if results:
            found.append({"role": "tool", "parts": describe_parts(results)})
        if others:
            found.append({"role": message.role, "parts": describe_parts(others)})
    return _encode(found)


def describe_output(message: Message, reason: StopReason) -> str:
    """Return an answer as `gen_ai.output.messages` has it."""
    return _encode([{"role": "assistant", "parts": describe_parts(message.blocks), "finish_reason": finish_reason(reason)}])


def describe_tools(tools: Iterable[ToolSpec]) -> str:
    """Return tools as `gen_ai.tool.definitions` has them."""
    found = []
    for tool in tools:
        schema = msgspec.Raw(tool.schema.encode())
        found.append({"type": "function", "name": tool.name, "description": tool.description, "parameters": schema})
    return _encode(found)


def describe_parts(blocks: Iterable[Block]) -> list[dict[str, object]]:
    """Return blocks as parts of a message."""
    return [part for block in blocks if (part := _describe(block))]


def _describe(block: Block) -> dict[str, object]:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "content": cut_text(text)}
        case ReasoningBlock(text=text):
            return {"type": "reasoning", "content": cut_text(text)} if text else {}
        case ToolCall():
            return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": _arguments(block)}
        case ToolResult():
            plain = all(isinstance(one, TextBlock) for one in block.content)
            answer = cut_text(block.text) if plain else [_describe(one) for one in block.content]
            return {"type": "tool_call_response", "id": block.call_id, "response": answer, "result": answer}
        case ImageBlock() | DocumentBlock():
            return _media(block)
        case HostedBlock():
            return _describe_hosted(block)


def _describe_hosted(block: HostedBlock) -> dict[str, object]:
    """Return what a provider's own tool did: the provider's word for it, and one line."""
    try:
        kind = msgspec.json.decode(block.raw, type=_Typed).type or block.wire
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        kind = block.wire
    about = {"type": kind, "text": block.line}
    if block.closes:
        return {"type": "server_tool_call_response", "id": block.closes, "server_tool_call_response": about}
    return {"type": "server_tool_call", "id": block.opens or block.id or None, "name": kind, "server_tool_call": about}


class _Typed(msgspec.Struct):
    type: str = ""


def _arguments(call: ToolCall) -> object:
    return call.args if call.parses and len(call.raw) <= LONGEST else cut_text(call.raw)


def _media(block: ImageBlock | DocumentBlock) -> dict[str, object]:
    """Return media without its bytes: a trace is no place for them."""
    family = block.media_type.partition("/")[0] if isinstance(block, DocumentBlock) else "image"
    modality = family if family in MODALITIES else "document"
    about: dict[str, object] = {"modality": modality, "mime_type": block.media_type or None}
    match block.source:
        case Remote(url=url):
            return {"type": "uri", **about, "uri": url.partition("?")[0]}
        case Uploaded(file_id=id):
            return {"type": "file", **about, "file_id": id}
        case Stored(digest=digest):
            return {"type": "file", **about, "file_id": digest}
        case Inline(data=data):
            return {"type": "text", "content": f"[{block.media_type or 'media'}, {len(data) * 3 // 4} bytes]"}


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
