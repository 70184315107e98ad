"""One form for requests that mean the same to their provider. Both sides of a comparison go through it; no key is deleted.

Every rule writes out what the API takes as said, or picks one of two spellings of one thing:

    Anthropic Messages
      stream                      false when absent
      tool_result.is_error        false when absent
      cache_control.ttl           "5m" when absent
      content, system             a text is one text block, in messages, in tool results and in the system prompt
      consecutive messages        of one role are one message: the API merges them (sheet 3); a Loss says so, too

    Responses
      stream                      false when absent
      type                        "message" when absent beside a role, but the assistant's (sheet 3: the easy form)
      content, output             a text is one text part: input_text, or output_text from the assistant
      output_text.annotations     [] when absent

Nothing else: order, ids, nulls, unknown fields and numbers (1 is not 1.0) all count.
"""

import json
from typing import Any

Json = dict[str, Any]


def text_of(body: Json) -> str:
    """A body as text, for comparing: key order aside, everything counts."""
    return json.dumps(body, sort_keys=True, ensure_ascii=False, indent=1)


# Anthropic Messages.


def anthropic(body: Json) -> Json:
    """An Anthropic request in its normal form."""
    full: Json = {"stream": False, **body}
    messages: list[Json] = []
    for message in body["messages"]:
        turn = {**message, "content": [_anthropic_block(block) for block in _blocks(message["content"])]}
        if messages and turn.keys() == messages[-1].keys() and turn["role"] == messages[-1]["role"] != "system":
            messages[-1]["content"] += turn["content"]
        else:
            messages.append(turn)
    full["messages"] = messages
    if "system" in body:
        full["system"] = [_marked(block) for block in _blocks(body["system"])]
    if "tools" in body:
        full["tools"] = [_marked(tool) for tool in body["tools"]]
    return _marked(full)


def _blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _marked(own: Json) -> Json:
    if not isinstance(own.get("cache_control"), dict):
        return own
    return {**own, "cache_control": {"ttl": "5m", **own["cache_control"]}}


def _anthropic_block(block: Json) -> Json:
    if block["type"] == "tool_result":
        block = {"is_error": False, **block}
        if "content" in block:
            block["content"] = [_marked(inner) for inner in _blocks(block["content"])]
    return _marked(block)


# OpenAI Responses.


def responses(body: Json) -> Json:
    """A Responses request in its normal form."""
    full: Json = {"stream": False, **body}
    if not isinstance(body.get("input", ""), str):
        full["input"] = [_item(item) for item in body["input"]]
    elif "input" in body:
        full["input"] = [_item({"role": "user", "content": body["input"]})]
    return full


def _item(item: Json) -> Json:
    if item.get("role") in ("user", "system", "developer"):
        item = {"type": "message", **item}
    name = "output" if item.get("type") in ("function_call_output", "custom_tool_call_output") else "content"
    if name not in item or item.get("type") == "reasoning":
        return item
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    content = [{"type": kind, "text": item[name]}] if isinstance(item[name], str) else item[name]
    return {**item, name: [_part(part) for part in content]}


def _part(part: Json) -> Json:
    return {"annotations": [], **part} if part["type"] == "output_text" else part
