"""Run events as a UI message stream, which the Vercel AI SDK reads (npm `ai` 7), and the requests of its chat. Pure.

A message of the stream is a run, resumed or not; a step is a request to the model. Retracted text is removed with
`reset-step`, so nothing is shown twice. Runs inside calls are not shown, but the approvals that they wait for are.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from evener import streaming as st
from evener.encodings.forms import FINAL_RESULT
from evener.errors import EvenerError, UsageError
from evener.events import CallFinished
from evener.harness.approvals import keyed
from evener.result import Approval, RunResult
from evener.transcript.blocks import Block, ReasoningBlock, TextBlock, ToolCall
from evener.transcript.message import Message
from evener.web.messages import (
    Frame,
    PageAnswer,
    PageRequest,
    answer_id,
    arguments_of,
    check_thread_id,
    field,
    media_block,
    output_of,
)

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
END = b"data: [DONE]\n\n"
REASONS = {"done": "stop", "length": "length", "refusal": "content-filter", "approval": "tool-calls"}
Kind = Literal["text", "reasoning"]


class UiStreamEncoder:
    """Turns the events of one run, in order, into chunks. `finished` is True after the last one."""

    headers: Mapping[str, str] = HEADERS
    end = END

    def __init__(self) -> None:
        self.finished = False
        self._open: tuple[Kind, str] | None = None
        self._step = False
        self._shown = 0  # pieces in this step
        self._omitted = False
        self._begun: set[str] = set()  # calls whose arguments are being shown in this step
        self._announced: set[str] = set()
        self._started: set[str] = set()
        self._number = 0
        self._output: Frame | None = None

    def encode(self, event: st.StreamEvent) -> list[Frame]:
        """Return the chunks for one event; none if the protocol has no chunk for it."""
        if event.place.parent_run:
            return []
        return [*self._of_answer(event), *self._of_run(event)]

    def fail(self, error: EvenerError) -> list[Frame]:
        """Return the end of a run that failed."""
        self.finished = True
        text: Frame = {"type": "error", "errorText": str(error)}
        return [*self._close(), *self._end_step(), text, {"type": "finish", "finishReason": "error"}]

    def notice(self, text: str) -> list[Frame]:
        """Return a notice for the user that is not part of the message."""
        return [{"type": "data-notice", "data": {"text": text}, "transient": True}]

    # The answer of the model.

    def _of_answer(self, event: st.StreamEvent) -> Iterator[Frame]:
        match event:
            case st.RequestStarted():
                yield from self._begin_step()
            case st.TextStreamed(text=text):
                yield from self._add("text", text)
            case st.ReasoningStreamed(text=text):
                yield from self._add("reasoning", text)
            case st.ArgumentsStreamed(call=call, tool=tool, text=text) if call and tool != FINAL_RESULT:
                yield from self._add_arguments(call, tool, text)
            case st.OutputStreamed(value=value):
                self._output = {"type": "data-output", "id": event.place.run, "data": value}
                yield self._output
            case st.Omitted():
                self._omitted = True
            case st.Retracted():
                yield from self._retract()
            case st.TurnFinished(message=message):
                yield from self._end_turn(message)

    def _begin_step(self) -> Iterator[Frame]:
        if self._step and not self._shown and not self._announced:
            return  # the open step is empty: its content was retracted, or it had none
        yield from self._close()
        yield from self._end_step()
        self._step, self._shown, self._omitted, self._output = True, 0, False, None
        self._begun.clear()
        self._announced.clear()
        yield {"type": "start-step"}

    def _end_step(self) -> Iterator[Frame]:
        if self._step:
            self._step = False
            yield {"type": "finish-step"}

    def _add(self, kind: Kind, text: str) -> Iterator[Frame]:
        if not text:
            return
        if self._open is None or self._open[0] != kind:
            yield from self._close()
            self._number += 1
            self._open = (kind, f"{kind}-{self._number}")
            yield {"type": f"{kind}-start", "id": self._open[1]}
        self._shown += 1
        yield {"type": f"{kind}-delta", "id": self._open[1], "delta": text}

    def _close(self) -> Iterator[Frame]:
        if self._open is not None:
            kind, id = self._open
            self._open = None
            yield {"type": f"{kind}-end", "id": id}

    def _add_arguments(self, call: str, tool: str, text: str) -> Iterator[Frame]:
        yield from self._close()
        self._shown += 1
        if call not in self._begun:
            self._begun.add(call)
            yield {"type": "tool-input-start", "toolCallId": call, "toolName": tool}
        if text:
            yield {"type": "tool-input-delta", "toolCallId": call, "inputTextDelta": text}

    def _retract(self) -> Iterator[Frame]:
        yield from self._close()
        if self._shown or self._output:
            yield {"type": "reset-step"}
        self._shown, self._omitted, self._output = 0, False, None
        self._begun.clear()

    def _end_turn(self, message: Message) -> Iterator[Frame]:
        """Close the turn. If pieces are missing, or calls were renamed, the whole message replaces them."""
        yield from self._close()
        calls = [call for call in message.calls if call.name != FINAL_RESULT]
        if self._omitted or not self._shown or self._begun.difference(call.id for call in calls):
            kept = self._output
            yield from self._retract()
            for block in message.blocks:
                yield from self._show_block(block)
            yield from self._close()
            if kept:
                yield kept
        else:
            for call in calls:
                yield from self._announce(call)

    def _show_block(self, block: Block) -> Iterator[Frame]:
        match block:
            case TextBlock(text=text):
                yield from self._add("text", text)
            case ReasoningBlock(text=text):
                yield from self._add("reasoning", text)
            case ToolCall(name=name) if name != FINAL_RESULT:
                yield from self._close()
                yield from self._announce(block)

    def _announce(self, call: ToolCall) -> Iterator[Frame]:
        if call.id not in self._announced:
            self._announced.add(call.id)
            yield {"type": "tool-input-available", "toolCallId": call.id, "toolName": call.name, "input": arguments_of(call)}

    # Other events of the run.

    def _of_run(self, event: st.StreamEvent) -> Iterator[Frame]:
        match event:
            case st.RunStarted(place=place):
                yield {"type": "start", "messageId": place.run, "messageMetadata": {"thread": place.thread, "run": place.run}}
            case st.ToolStarted(call=call):
                self._started.add(call.id)
                yield from self._announce(call)
            case st.ToolProgressed(call=id, text=text, fraction=fraction) if text or fraction >= 0:
                shown = {"text": text, "fraction": fraction}
                yield {"type": "tool-output-available", "toolCallId": id, "output": shown, "preliminary": True}
            case st.ToolFinished(call=call, result=result):
                yield from self._announce(call)
                yield self._tool_output(call, result)
            case st.RetryScheduled(error=text) | st.NoticeGiven(text=text) | st.Warned(text=text):
                yield from self.notice(text)
            case st.RunFailed(error=error):
                yield from self.fail(error)
            case st.RunFinished(result=result):
                yield from self._finish(result)

    def _tool_output(self, call: ToolCall, result: CallFinished) -> Frame:
        if result.ok:
            return {"type": "tool-output-available", "toolCallId": call.id, "output": output_of(result)}
        rejected = result.outcome == "failed" and not (result.denied or result.by_hook)
        if rejected and call.id not in self._started:
            return {"type": "tool-output-denied", "toolCallId": call.id}
        return {"type": "tool-output-error", "toolCallId": call.id, "errorText": output_of(result)}

    def _finish(self, result: RunResult) -> Iterator[Frame]:
        self.finished = True
        yield from self._close()
        for one in keyed(result.approvals).values():
            yield from self._ask(one, result.thread)
        yield from self._end_step()
        told: Frame = {"type": "message-metadata", "messageMetadata": _metadata(result)}
        if result.stop == "cancelled":
            yield told
            yield {"type": "abort", "reason": result.detail}
        elif result.stop in REASONS:
            yield {"type": "finish", "finishReason": REASONS[result.stop], "messageMetadata": told["messageMetadata"]}
        else:
            yield told
            yield {"type": "error", "errorText": f"Stopped ({result.stop}): {result.detail}"}
            yield {"type": "finish", "finishReason": "error"}

    def _ask(self, one: Approval, thread: str) -> Iterator[Frame]:
        """Ask for an approval.

        An approval that is not a call of this run is shown as a call, because pages can only approve calls.
        """
        call = one.call
        if call is None:
            call = ToolCall(answer_id(one), f"approve_{one.interrupt}", "{}")
        elif one.thread != thread:
            call = ToolCall(answer_id(one), call.name, call.raw)
        yield from self._announce(call)
        asked: Frame = {"type": "tool-approval-request", "approvalId": answer_id(one), "toolCallId": call.id}
        yield {**asked, "reason": one.why} if one.why else asked


def _metadata(result: RunResult) -> Frame:
    usage = result.usage
    return {
        "thread": result.thread,
        "run": result.run,
        "stop": result.stop,
        "detail": result.detail,
        "cost": str(result.cost),
        "usage": {"inputTokens": usage.input_total, "outputTokens": usage.output_total},
    }


# What the chat sends.


def read_chat(body: Mapping[str, object]) -> PageRequest:
    """Return what a chat of the AI SDK asks for. Only its last message is read: the log has the conversation."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else body.get("message")
    thread = check_thread_id(field(body, "id"))
    found = last.get("parts") if isinstance(last, dict) else None
    parts = found if isinstance(found, list) else []
    if field(last, "role") == "user":
        prompt = tuple(block for part in parts for block in _read_part(part))
        if not prompt:
            raise UsageError("The message is empty. Send a text or a file.")
        return PageRequest(thread=thread, prompt=prompt, again=body.get("trigger") == "regenerate-message")
    answers = dict(one for part in parts for one in _read_answer(part))
    if not answers:
        raise UsageError(
            "There is nothing to do: the last message is not the user's, and decides no approval. Send a prompt or a decision."
        )
    return PageRequest(thread=thread, answers=answers)


def _read_part(part: object) -> Iterator[Block]:
    match part:
        case {"type": "text", "text": str(text)} if text:
            yield TextBlock(text)
        case {"type": "file", "url": str(url)}:
            yield media_block(url, field(part, "mediaType"), field(part, "filename"))


def _read_answer(part: object) -> Iterator[tuple[str, PageAnswer]]:
    match part:
        case {"state": "approval-responded", "approval": {"id": str(id), "approved": bool(approved)} as approval}:
            yield id, PageAnswer(approved, field(approval, "reason"))
