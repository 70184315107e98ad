"""What an editor is shown: events of a run, and messages of an earlier one, as `session/update`. Pure."""

from collections.abc import Iterator

import msgspec

from evener import streaming as st
from evener.tools.tool import Toolbox
from evener.transcript.blocks import Block, ReasoningBlock, ResultContent, TextBlock, ToolCall, ToolResult
from evener.transcript.message import Message

__all__ = ["Frame", "describe_call", "prompt_text", "replay_message", "updates_of"]

Frame = dict[str, object]
KINDS = {"read": "read", "idempotent": "edit", "write": "execute"}
CHUNKS: dict[str, str] = {"user": "user_message_chunk", "assistant": "agent_message_chunk"}


def updates_of(event: st.StreamEvent, tools: Toolbox) -> Iterator[Frame]:
    """Give the updates for one event. What has no place in the protocol is left out."""
    match event:
        case st.TextStreamed(text=text):
            yield _chunk("agent_message_chunk", text)
        case st.ReasoningStreamed(text=text):
            yield _chunk("agent_thought_chunk", text)
        case st.Retracted(why=why, wished=False):
            yield _chunk("agent_message_chunk", f"\n\n[What was shown since the last request does not count: {why}]\n\n")
        case st.ToolStarted(call=call):
            yield {"sessionUpdate": "tool_call", "status": "in_progress", **describe_call(call, tools)}
        case st.ToolProgressed(call=id, text=text) if text:
            yield {"sessionUpdate": "tool_call_update", "toolCallId": id, "content": [_text(text)]}
        case st.ToolFinished(call=call, result=result):
            status = "completed" if result.ok else "failed"
            yield {
                "sessionUpdate": "tool_call_update",
                "status": status,
                **describe_call(call, tools),
                "content": [_content(one) for one in result.content],
            }
        case _:
            return


def replay_message(message: Message, tools: Toolbox) -> Iterator[Frame]:
    """Give the updates that show a message of a loaded session."""
    for block in message.blocks:
        yield from _replay_block(block, CHUNKS.get(message.role, "agent_message_chunk"), tools)


def _replay_block(block: Block, kind: str, tools: Toolbox) -> Iterator[Frame]:
    match block:
        case TextBlock(text=text) if text:
            yield _chunk(kind, text)
        case ReasoningBlock(text=text) if text:
            yield _chunk("agent_thought_chunk", text)
        case ToolCall():
            yield {"sessionUpdate": "tool_call", "status": "in_progress", **describe_call(block, tools)}
        case ToolResult(call_id=id, content=content, is_error=failed):
            shown = [_content(one) for one in content]
            status = "failed" if failed else "completed"
            yield {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "content": shown}
        case _:
            return


def describe_call(call: ToolCall, tools: Toolbox) -> Frame:
    """Return a call as an editor shows it: its id, a title, its kind, and its arguments."""
    tool = tools.get(call.name)
    try:
        given = msgspec.json.decode(call.raw or "{}")
    except msgspec.DecodeError:
        given = call.raw
    kind = KINDS[tool.effect] if tool else "other"
    return {"toolCallId": call.id, "title": call.name, "kind": kind, "rawInput": given}


def prompt_text(prompt: object) -> str:
    """Return the text of a prompt: its texts, and the resources that it names or holds."""
    parts: list[str] = []
    for block in prompt if isinstance(prompt, list) else []:
        match block:
            case {"type": "text", "text": str(text)}:
                parts.append(text)
            case {"type": "resource_link", "uri": str(uri)}:
                parts.append(f"[{uri}]")
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
                parts.append(f"--- {uri} ---\n{text}\n---")
            case {"type": str(kind)}:
                parts.append(f"[{kind}]")
    return "\n".join(parts)


def _chunk(kind: str, text: str) -> Frame:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def _text(text: str) -> Frame:
    return {"type": "content", "content": {"type": "text", "text": text}}


def _content(block: ResultContent) -> Frame:
    return _text(block.text if isinstance(block, TextBlock) else f"[{block.kind}]")
