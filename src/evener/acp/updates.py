"""The display of an editor: events of a run, and messages of an earlier one, as `session/update`. Pure."""

from collections.abc import Iterator

from evener import streaming as st
from evener.acp.calls import Frame, describe_call, plan_of, show_content, show_result
from evener.encodings.forms import FINAL_RESULT
from evener.tools.tool import Toolbox
from evener.transcript.blocks import Block, DocumentBlock, ImageBlock, Inline, ReasoningBlock, TextBlock, ToolCall, ToolResult
from evener.transcript.message import Message

CHUNKS: dict[str, str] = {"user": "user_message_chunk", "assistant": "agent_message_chunk"}
TAKEN_BACK = "\n\n[The text since the last request is retracted: {}]\n\n"
LEFT_OUT = "\n\n[Parts of the answer were left out above. The whole of it:]\n\n"


class UpdateEncoder:
    """Turns the events of a session into updates. Runs inside calls are not shown."""

    def __init__(self, tools: Toolbox, cwd: str) -> None:
        self._tools = tools
        self._cwd = cwd
        self._announced: set[str] = set()
        self._shown = False
        self._omitted = False

    def encode(self, event: st.StreamEvent) -> list[Frame]:
        """Return the updates for one event; none if the protocol has no update for it."""
        if event.place.parent_run:
            return []
        return [*self._of_answer(event), *self._of_calls(event)]

    def call(self, call: ToolCall, status: str, **more: object) -> Frame:
        """Return the update of a call. The first update of a call contains its description."""
        first = call.id not in self._announced
        self._announced.add(call.id)
        shown = describe_call(call, self._tools, self._cwd)
        return {"sessionUpdate": "tool_call" if first else "tool_call_update", "status": status, **shown, **more}

    def _of_answer(self, event: st.StreamEvent) -> Iterator[Frame]:
        match event:
            case st.RequestStarted():
                self._shown = self._omitted = False
            case st.TextStreamed(text=text) if text:
                self._shown = True
                yield chunk("agent_message_chunk", text)
            case st.ReasoningStreamed(text=text) if text:
                self._shown = True
                yield chunk("agent_thought_chunk", text)
            case st.Omitted():
                self._omitted = True
            case st.Retracted(why=why, wished=False):
                yield chunk("agent_message_chunk", TAKEN_BACK.format(why))
            case st.TurnFinished(message=message):
                yield from self._end_turn(message)

    def _end_turn(self, message: Message) -> Iterator[Frame]:
        if self._omitted:
            yield chunk("agent_message_chunk", LEFT_OUT)
        if self._omitted or not self._shown:
            for block in message.blocks:
                if not isinstance(block, ToolCall):
                    yield from self._replay(block, "agent_message_chunk")
        for call in message.calls:
            if call.name != FINAL_RESULT:
                self._announced.discard(call.id)  # some providers use an id again in a later turn
                yield self.call(call, "pending")

    def _of_calls(self, event: st.StreamEvent) -> Iterator[Frame]:
        match event:
            case st.ToolStarted(call=call):
                yield self.call(call, "in_progress")
            case st.ToolProgressed(call=id, text=text) if text:
                yield {"sessionUpdate": "tool_call_update", "toolCallId": id, "content": [show_content(TextBlock(text))]}
            case st.ToolFinished(call=call, result=result):
                content = show_result(call, result, self._cwd)
                yield self.call(call, "completed" if result.ok else "failed", content=content)
                plan = plan_of(call, self._tools) if result.ok else None
                if plan:
                    yield plan

    def replay(self, message: Message) -> Iterator[Frame]:
        """Yield the updates that show a message of a loaded session."""
        for block in message.blocks:
            yield from self._replay(block, CHUNKS.get(message.role, "agent_message_chunk"))

    def _replay(self, block: Block, kind: str) -> Iterator[Frame]:
        match block:
            case TextBlock(text=text) if text:
                yield chunk(kind, text)
            case ReasoningBlock(text=text) if text:
                yield chunk("agent_thought_chunk", text)
            case ToolCall():
                self._announced.discard(block.id)
                yield self.call(block, "pending")
                plan = plan_of(block, self._tools)
                if plan:
                    yield plan
            case ToolResult(call_id=id, content=content, is_error=failed):
                shown: Frame = {"sessionUpdate": "tool_call_update", "toolCallId": id}
                yield {
                    **shown,
                    "status": "failed" if failed else "completed",
                    "content": [show_content(one) for one in content],
                }


def chunk(kind: str, text: str) -> Frame:
    """Return the update for a piece of a message."""
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def read_prompt(prompt: object) -> list[Block]:
    """Return the blocks of a prompt: texts, images, and the files that the editor names or includes."""
    found: list[Block] = []
    for block in prompt if isinstance(prompt, list) else []:
        match block:
            case {"type": "text", "text": str(text)} if text:
                found.append(TextBlock(text))
            case {"type": "image", "data": str(data), "mimeType": str(kind)}:
                found.append(ImageBlock(Inline(data), kind))
            case {"type": "audio", "data": str(data), "mimeType": str(kind)}:
                found.append(DocumentBlock(Inline(data), kind))
            case {"type": "resource_link", "uri": str(uri)}:
                found.append(TextBlock(f"[{uri}]"))
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
                found.append(TextBlock(f"--- {uri} ---\n{text}\n---"))
            case {"type": "resource", "resource": {"blob": str(data), "mimeType": str(kind), "uri": str(uri)}}:
                found.append(DocumentBlock(Inline(data), kind, uri))
            case {"type": str(kind)}:
                found.append(TextBlock(f"[{kind}]"))
    return found
