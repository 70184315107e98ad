"""Run events as AG-UI events (`ag-ui-protocol` 1.0), and the requests of its clients. Pure.

The protocol has no event that retracts text, but a snapshot of all messages replaces those that a client shows. After a
broken stream, the encoder sends a snapshot without the broken answer. Approvals are interrupts, which the next run's `resume`
answers. Runs inside calls are not shown, but the approvals that they wait for are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from evener import streaming as st
from evener.encodings.forms import FINAL_RESULT
from evener.errors import EvenerError, UsageError
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

ENDS = ("done", "length", "refusal")
"""Stops that the protocol counts as a success."""
MEDIA = {"image": "image/*", "audio": "audio/*", "video": "video/*", "document": ""}
ANSWER: Frame = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string"},
        "editedArgs": {"type": "object", "description": "arguments in place of the model's"},
    },
    "required": ["approved"],
}
Kind = Literal["text", "reasoning"]


class Part(msgspec.Struct):
    """A text or reasoning message of the current turn."""

    kind: Kind
    id: str
    pieces: list[str]


class AgUiEncoder:
    """Turns the events of one run, in order, into events of the protocol. `finished` is True after the last one.

    `thread` and `run` are the client's names; `shown` are the messages that it has.
    """

    headers: Mapping[str, str] = {}
    end = b""

    def __init__(self, *, thread: str, run: str, shown: Sequence[Frame] = ()) -> None:
        self.finished = False
        self._names: Frame = {"threadId": thread, "runId": run}
        self._run = run
        self._kept = list(shown)  # messages of completed turns
        self._parts: list[Part] = []  # of the current turn
        self._open: Part | None = None
        self._open_calls: dict[str, None] = {}
        self._begun: set[str] = set()
        self._parent = ""  # the message that calls of this turn belong to
        self._spare = ""  # the id of an emptied reasoning message, to be reused
        self._omitted = False
        self._number = 0

    def encode(self, event: st.StreamEvent) -> list[Frame]:
        """Return the AG-UI events for one event; none if the protocol has no event for it."""
        if event.place.parent_run:
            return []
        return [*self._of_answer(event), *self._of_run(event)]

    def fail(self, error: EvenerError) -> list[Frame]:
        """Return the end of a run that failed."""
        self.finished = True
        return [*self._close_all(), {"type": "RUN_ERROR", "message": str(error), "code": type(error).__name__}]

    def notice(self, text: str) -> list[Frame]:
        """Return a notice for the user that is not part of the conversation."""
        return [_custom("notice", {"text": text})]

    def _new_id(self) -> str:
        self._number += 1
        return f"{self._run}-{self._number}"

    # The answer of the model.

    def _of_answer(self, event: st.StreamEvent) -> Iterator[Frame]:
        match event:
            case st.TextStreamed(text=text):
                yield from self._add("text", text)
            case st.ReasoningStreamed(text=text):
                yield from self._add("reasoning", text)
            case st.ArgumentsStreamed(call=call, tool=tool, text=text) if call and tool != FINAL_RESULT:
                yield from self._add_arguments(call, tool, text)
            case st.OutputStreamed(value=value):
                yield _custom("output", value)
            case st.Omitted():
                self._omitted = True
            case st.Retracted():
                yield from self._retract()
            case st.TurnFinished(message=message):
                yield from self._end_turn(message)

    def _add(self, kind: Kind, text: str) -> Iterator[Frame]:
        if not text:
            return
        if self._open is None or self._open.kind != kind:
            yield from self._close()
            id = self._spare if kind == "reasoning" and self._spare else self._new_id()
            self._spare = "" if kind == "reasoning" else self._spare
            self._open = Part(kind, id, [])
            self._parts.append(self._open)
            yield from _open_part(self._open)
        self._open.pieces.append(text)
        prefix = "TEXT_MESSAGE" if kind == "text" else "REASONING_MESSAGE"
        yield {"type": f"{prefix}_CONTENT", "messageId": self._open.id, "delta": text}

    def _close(self) -> Iterator[Frame]:
        if self._open is None:
            return
        part, self._open = self._open, None
        if part.kind == "text":
            self._parent = part.id
            yield {"type": "TEXT_MESSAGE_END", "messageId": part.id}
        else:
            yield {"type": "REASONING_MESSAGE_END", "messageId": part.id}
            yield {"type": "REASONING_END", "messageId": part.id}

    def _close_all(self) -> Iterator[Frame]:
        yield from self._close()
        for call in self._open_calls:
            yield {"type": "TOOL_CALL_END", "toolCallId": call}
        self._open_calls.clear()

    def _add_arguments(self, call: str, tool: str, text: str) -> Iterator[Frame]:
        yield from self._close()
        if call not in self._begun:
            self._begun.add(call)
            self._open_calls[call] = None
            self._parent = self._parent or self._new_id()
            yield {"type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": tool, "parentMessageId": self._parent}
        if text:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": text}

    def _retract(self) -> Iterator[Frame]:
        """Yield a snapshot without the retracted text.

        Reasoning is emptied: clients keep reasoning that a snapshot leaves out.
        """
        yield from self._close_all()
        thought = next((part.id for part in self._parts if part.kind == "reasoning"), self._spare)
        seen = bool(self._parts or self._begun)
        self._forget_turn()
        if seen:
            has_other = any(one.get("role") == "reasoning" for one in self._kept)
            self._spare = "" if has_other else thought
            yield self._snapshot()

    def _forget_turn(self) -> None:
        self._parts, self._parent, self._omitted = [], "", False
        self._begun.clear()

    def _snapshot(self) -> Frame:
        spare: list[Frame] = [{"id": self._spare, "role": "reasoning", "content": ""}] if self._spare else []
        return {"type": "MESSAGES_SNAPSHOT", "messages": [*self._kept, *spare]}

    def _end_turn(self, message: Message) -> Iterator[Frame]:
        """Close the turn. If pieces are missing, or calls were renamed, a snapshot shows the whole message."""
        calls = [call for call in message.calls if call.name != FINAL_RESULT]
        yield from self._close_all()
        if self._omitted or self._begun.difference(call.id for call in calls):
            self._forget_turn()
            self._parts = [Part(kind, self._new_id(), [text]) for kind, text in _texts_of(message.blocks)]
            self._keep_turn(calls)
            yield self._snapshot()
            return
        if not self._parts and not self._begun:
            for kind, text in _texts_of(message.blocks):
                yield from self._add(kind, text)
        for call in calls:
            if call.id not in self._begun:
                yield from self._add_arguments(call.id, call.name, call.raw or "{}")
        yield from self._close_all()
        self._keep_turn(calls)

    def _keep_turn(self, calls: Iterable[ToolCall]) -> None:
        """Record what the client shows of a completed turn."""
        made: list[Frame] = [_message_of(part) for part in self._parts]
        listed = [{"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.raw}} for one in calls]
        if listed:
            parent = (
                self._parent or next((part.id for part in reversed(self._parts) if part.kind == "text"), "") or self._new_id()
            )
            found = next((one for one in made if one["id"] == parent), None)
            if found is None:
                made.append({"id": parent, "role": "assistant", "toolCalls": listed})
            else:
                found["toolCalls"] = listed
        self._kept += made
        self._forget_turn()

    # Other events of the run.

    def _of_run(self, event: st.StreamEvent) -> Iterator[Frame]:
        match event:
            case st.RunStarted():
                yield {"type": "RUN_STARTED", **self._names}
            case st.ToolProgressed(call=id, text=text, fraction=fraction) if text or fraction >= 0:
                yield _custom("progress", {"toolCallId": id, "text": text, "fraction": fraction})
            case st.ToolFinished(call=call, result=result):
                told: Frame = {"toolCallId": call.id, "content": output_of(result), "role": "tool"}
                id = self._new_id()
                self._kept.append({"id": id, **told})
                yield {"type": "TOOL_CALL_RESULT", "messageId": id, **told}
            case st.RetryScheduled(error=text) | st.NoticeGiven(text=text) | st.Warned(text=text):
                yield from self.notice(text)
            case st.RunFailed(error=error):
                yield from self.fail(error)
            case st.RunFinished(result=result):
                yield from self._finish(result)

    def _finish(self, result: RunResult) -> Iterator[Frame]:
        self.finished = True
        yield from self._close_all()
        usage = _usage(result)
        told: Frame = {"type": "RUN_FINISHED", **self._names, "usage": usage}
        if result.stop == "approval":
            waiting = [_interrupt(one, result.thread) for one in keyed(result.approvals).values()]
            yield {**told, "outcome": {"type": "interrupt", "interrupts": waiting}}
        elif result.stop == "cancelled":
            yield {**told, "outcome": {"type": "cancelled"}}
        elif result.stop in ENDS:
            answer = msgspec.json.decode(result.output_text) if result.output_text else result.text
            shown = {"stop": result.stop, "output": answer, "thread": result.thread, "cost": str(result.cost)}
            yield {**told, "outcome": {"type": "success"}, "result": shown}
        else:
            yield {"type": "RUN_ERROR", "message": f"Stopped: {result.detail}", "code": result.stop, "usage": usage}


def _custom(name: str, value: object) -> Frame:
    return {"type": "CUSTOM", "name": f"evener.{name}", "value": value}


def _open_part(part: Part) -> Iterator[Frame]:
    if part.kind == "text":
        yield {"type": "TEXT_MESSAGE_START", "messageId": part.id, "role": "assistant"}
    else:
        yield {"type": "REASONING_START", "messageId": part.id}
        yield {"type": "REASONING_MESSAGE_START", "messageId": part.id, "role": "reasoning"}


def _message_of(part: Part) -> Frame:
    return {"id": part.id, "role": "assistant" if part.kind == "text" else "reasoning", "content": "".join(part.pieces)}


def _texts_of(blocks: Iterable[Block]) -> Iterator[tuple[Kind, str]]:
    for block in blocks:
        if isinstance(block, TextBlock) and block.text:
            yield "text", block.text
        elif isinstance(block, ReasoningBlock) and block.text:
            yield "reasoning", block.text


def _usage(result: RunResult) -> list[Frame]:
    used = result.usage
    if not used.input_total and not used.output_total:
        return []
    return [{
        "model": result.requests[-1].model if result.requests else "",
        "inputTokens": used.input_total, "outputTokens": used.output_total, "totalTokens": used.input_total + used.output_total,
        "reasoningTokens": used.reasoning, "cachedInputTokens": used.cache_read, "cacheWriteInputTokens": used.cache_write,
    }]  # fmt: skip


def _interrupt(one: Approval, thread: str) -> Frame:
    call = one.call
    made: Frame = {
        "id": answer_id(one),
        "reason": "tool_call" if one.interrupt == "tool" else f"evener:{one.interrupt}",
        "message": one.why or f"The run waits for a decision ({one.interrupt}).",
        "responseSchema": ANSWER,
    }
    if call is not None:
        made["metadata"] = {"tool": call.name, "arguments": arguments_of(call)}
        if one.thread == thread:
            made["toolCallId"] = call.id
    if one.expires:
        made["expiresAt"] = datetime.fromtimestamp(one.expires, UTC).isoformat()
    return made


# What a client sends.


def read_ag_ui(body: Mapping[str, object]) -> PageRequest:
    """Return what an AG-UI client asks for (`RunAgentInput`). Only its last message is read: the log has the others."""
    found = body.get("messages")
    messages = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    thread, run = check_thread_id(field(body, "threadId")), field(body, "runId")
    if not run or len(run) > 128:
        raise UsageError("`runId` must be a text of 1 to 128 characters.")
    unused = tuple(name for name in ("tools", "context", "state") if body.get(name))
    resume = body.get("resume")
    answers = dict(one for entry in resume for one in _read_answer(entry)) if isinstance(resume, list) else {}
    last = messages[-1] if messages else {}
    prompt = tuple(_read_content(last.get("content"))) if not answers and last.get("role") == "user" else ()
    if not answers and not prompt:
        raise UsageError(
            "There is nothing to do: the last message is empty or not the user's, and `resume` has no answers. Send either."
        )
    return PageRequest(thread=thread, run=run, prompt=prompt, answers=answers, shown=tuple(messages), unused=unused)


def _read_answer(entry: object) -> Iterator[tuple[str, PageAnswer]]:
    match entry:
        case {"interruptId": str(id), "status": "cancelled"}:
            yield id, PageAnswer(False, "The user left it unanswered.")
        case {"interruptId": str(id), "payload": bool(approved)}:
            yield id, PageAnswer(approved)
        case {"interruptId": str(id), "payload": {"approved": bool(approved)} as payload}:
            edited = payload.get("editedArgs")
            yield id, PageAnswer(approved, field(payload, "reason"), edited if isinstance(edited, dict) else None)
        case {"interruptId": str(id)}:
            raise UsageError(f"The answer to {id!r} needs a payload such as {{'approved': true}}.")
        case _:
            raise UsageError("Each entry of `resume` needs an `interruptId` and a `status`.")


def _read_content(content: object) -> Iterator[Block]:
    if isinstance(content, str) and content:
        yield TextBlock(content)
    for part in content if isinstance(content, list) else []:
        match part:
            case {"type": "text", "text": str(text)} if text:
                yield TextBlock(text)
            case {"type": str(kind), "source": {"type": "data", "value": str(value), "mimeType": str(mime)}} if kind in MEDIA:
                yield media_block(f"data:{mime};base64,{value}", mime)
            case {"type": str(kind), "source": {"type": "url", "value": str(url)} as source} if kind in MEDIA:
                yield media_block(url, field(source, "mimeType") or MEDIA[kind])
