"""AG-UI: each event of ours is accepted by the typed models of `ag-ui-protocol`, and what a client shows is what counts."""

import asyncio

import pytest
from ag_ui.core import Event, RunAgentInput
from pydantic import TypeAdapter

from evener import streaming as st
from evener.errors import AuthFailed, UsageError
from evener.testing.scripted_model import calls
from evener.transcript import ImageBlock, Message, ReasoningBlock, Remote, TextBlock, ToolCall
from evener.transcript.reply import Usage
from evener.web import AgUiEncoder, read_ag_ui
from evener.web.messages import Frame, PageAnswer, decide_by_answers
from tests.web.runs import (
    ERASE,
    LOOK,
    PLACE,
    arguments,
    ask,
    begin,
    encode_all,
    encode_run,
    failed,
    harness_of,
    omitted,
    request,
    retracted,
    text,
    thought,
)

EVENTS: TypeAdapter[object] = TypeAdapter(Event)
USER: Frame = {"id": "u1", "role": "user", "content": "Go."}


def encoder() -> AgUiEncoder:
    return AgUiEncoder(thread="t1", run="run1", shown=[USER])


def check(frames: list[Frame]) -> list[str]:
    """Hold each event against its model; return the types."""
    for frame in frames:
        EVENTS.validate_python(frame)
    return [str(frame["type"]) for frame in frames]


def finished(*blocks: TextBlock | ToolCall | ReasoningBlock) -> st.StreamEvent:
    return st.TurnFinished(place=PLACE, sequence=7, message=Message(role="assistant", blocks=blocks), usage=Usage())


def test_a_run_with_a_call_is_accepted() -> None:
    async def go() -> None:
        frames = await ask(harness_of([LOOK, "Snow."]).thread(), encoder())
        assert check(frames) == [
            "RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TOOL_CALL_START",
            "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END", "RUN_FINISHED",
        ]  # fmt: skip
        assert frames[4]["parentMessageId"] == frames[1]["messageId"]
        assert frames[-1]["outcome"] == {"type": "success"}

    asyncio.run(go())


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        ({"approved": True}, "erased /x"),
        ({"approved": True, "editedArgs": {"path": "/y"}}, "erased /y"),
        ({"approved": False, "reason": "no"}, "ApprovalRejected: no"),
    ],
)
def test_an_interrupt_is_answered_by_the_next_run(payload: Frame, result: str) -> None:
    async def go() -> None:
        thread = harness_of([ERASE, "Done."]).thread("t1", begin=True)
        frames = await ask(thread, encoder())
        check(frames)
        outcome = frames[-1]["outcome"]
        assert isinstance(outcome, dict)
        (asked,) = outcome["interrupts"]
        assert (asked["toolCallId"], asked["reason"]) == ("c1", "tool_call")
        body = {"threadId": "t1", "runId": "run2", "messages": [USER]}
        body["resume"] = [{"interruptId": asked["id"], "status": "resolved", "payload": payload}]
        RunAgentInput.model_validate(body)
        sent = read_ag_ui(body)
        await thread.decide(decide_by_answers(await thread.approvals(), sent.answers, by="web"))
        more = await encode_run(thread.resume_stream(), AgUiEncoder(thread="t1", run="run2"))
        check(more)
        told = next(frame for frame in more if frame["type"] == "TOOL_CALL_RESULT")
        assert str(told["content"]).endswith(result)

    asyncio.run(go())


def test_after_a_broken_stream_the_client_shows_only_what_counts() -> None:
    frames = encode_all(
        encoder(), *begin(), text("It is ve"), arguments("c0", "{"), retracted(), request(2), text("It is cold."),
        finished(TextBlock("It is cold.")), request(3), text("And"), retracted(),
    )  # fmt: skip
    shown = [frame["messages"] for frame in frames if frame["type"] == "MESSAGES_SNAPSHOT"]
    check(frames)
    assert shown == [[USER], [USER, {"id": "run1-2", "role": "assistant", "content": "It is cold."}]]
    before = frames[: next(n for n, frame in enumerate(frames) if frame["type"] == "MESSAGES_SNAPSHOT")]
    assert [frame["type"] for frame in before][-1] == "TOOL_CALL_END"


def test_reasoning_that_was_retracted_is_emptied_and_its_message_used_again() -> None:
    frames = encode_all(
        encoder(), *begin(), thought("Hm"), retracted(), request(2), thought("So."), finished(ReasoningBlock("So."))
    )
    check(frames)
    snapshot = next(frame for frame in frames if frame["type"] == "MESSAGES_SNAPSHOT")
    emptied = {"id": "run1-1", "role": "reasoning", "content": ""}
    assert snapshot["messages"] == [USER, emptied]
    opened = [frame["messageId"] for frame in frames if frame["type"] == "REASONING_MESSAGE_START"]
    assert opened == ["run1-1", "run1-1"]


def test_where_pieces_were_left_out_or_calls_renamed_a_snapshot_shows_the_message() -> None:
    whole = finished(TextBlock("All of it."), ToolCall("c9", "look", "{}"))
    listed = [{"id": "c9", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    for shown in ((text("All"), omitted()), (text("All"), arguments("other"))):
        frames = encode_all(encoder(), *begin(), *shown, whole)
        check(frames)
        assert frames[-1]["messages"] == [
            USER, {"id": "run1-2", "role": "assistant", "content": "All of it.", "toolCalls": listed},
        ]  # fmt: skip
    silent = check(encode_all(encoder(), *begin(), whole))
    assert silent[1:] == [
        "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END",
    ]  # fmt: skip


def test_a_failure_is_the_last_event_and_closes_what_is_open() -> None:
    frames = encode_all(encoder(), *begin(), text("It is"), failed(AuthFailed("The key is wrong.")))
    assert check(frames)[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert frames[-1]["code"] == "AuthFailed"
    assert str(frames[-1]["message"]).startswith("The key is wrong.")


def test_a_cancelled_run_is_no_success() -> None:
    async def go() -> None:
        run = harness_of([calls(ToolCall("c1", "wait", "{}"))]).thread("t1", begin=True).stream("Go.")
        frames: list[Frame] = []
        made = encoder()
        async for event in run:
            frames += made.encode(event)
            if isinstance(event, st.ToolStarted):
                await run.cancel("enough")
        check(frames)
        assert frames[-1]["outcome"] == {"type": "cancelled"}

    asyncio.run(go())


def test_a_client_is_read_with_its_files_and_told_what_is_not_used() -> None:
    image = {"type": "image", "source": {"type": "url", "value": "https://x.test/a.png", "mimeType": "image/png"}}
    content = [{"type": "text", "text": "Look."}, image]
    body = {"threadId": "t1", "runId": "r", "messages": [{"id": "u", "role": "user", "content": content}], "tools": [
        {"name": "f", "description": "", "parameters": {}}
    ]}  # fmt: skip
    RunAgentInput.model_validate(body)
    found = read_ag_ui(body)
    assert found.prompt == (TextBlock("Look."), ImageBlock(Remote("https://x.test/a.png"), "image/png"))
    assert found.unused == ("tools",)
    cancelled = {**body, "resume": [{"interruptId": "a:b", "status": "cancelled"}]}
    assert read_ag_ui(cancelled).answers == {"a:b": PageAnswer(False, "The user left it unanswered.")}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"threadId": "t1", "messages": [USER]},
        {"threadId": "", "runId": "r", "messages": [USER]},
        {"threadId": "t1", "runId": "r", "messages": []},
        {"threadId": "t1", "runId": "r", "messages": [{**USER, "role": "assistant"}]},
        {"threadId": "t1", "runId": "r", "messages": [USER], "resume": [{"interruptId": "a", "status": "resolved"}]},
        {"threadId": "t1", "runId": "r", "messages": [USER], "resume": [7]},
    ],
)
def test_a_request_that_asks_for_nothing_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        read_ag_ui(body)
