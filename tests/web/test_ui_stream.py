"""The UI message stream: each run as chunks that a page of the AI SDK shows. `test_npm` reads them as a page does."""

import asyncio

import pytest

from evener import streaming as st
from evener.errors import ApprovalStale, AuthFailed, UsageError
from evener.harness import Decision
from evener.testing.scripted_model import calls
from evener.transcript import ImageBlock, Inline, Message, TextBlock, ToolCall
from evener.transcript.reply import Usage
from evener.web import UiStreamEncoder, read_chat
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


def kinds(frames: list[Frame]) -> list[str]:
    return [str(frame["type"]) for frame in frames]


def finished(*blocks: TextBlock | ToolCall) -> st.StreamEvent:
    return st.TurnFinished(place=PLACE, sequence=7, message=Message(role="assistant", blocks=blocks), usage=Usage())


def test_a_run_is_one_message_with_a_step_for_each_request() -> None:
    async def go() -> None:
        frames = await ask(harness_of([LOOK, "Snow."]).thread(), UiStreamEncoder())
        assert kinds(frames) == [
            "start", "start-step", "text-start", "text-delta", "text-end", "tool-input-start", "tool-input-delta",
            "tool-input-available", "tool-output-available", "finish-step",
            "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish",
        ]  # fmt: skip
        assert frames[7]["input"] == {"city": "Oslo"}
        assert frames[8]["output"] == "snow in Oslo"
        assert frames[-1]["finishReason"] == "stop"

    asyncio.run(go())


@pytest.mark.parametrize(("approved", "last"), [(True, "tool-output-available"), (False, "tool-output-denied")])
def test_an_approval_is_asked_and_answered_in_the_same_message(approved: bool, last: str) -> None:
    async def go() -> None:
        harness = harness_of([ERASE, "Done."])
        thread = harness.thread("t1", begin=True)
        frames = await ask(thread, UiStreamEncoder())
        asked = next(frame for frame in frames if frame["type"] == "tool-approval-request")
        assert asked["toolCallId"] == "c1"
        assert frames[-1]["finishReason"] == "tool-calls"

        part = {"type": "tool-erase", "toolCallId": "c1", "state": "approval-responded"}
        part["approval"] = {"id": asked["approvalId"], "approved": approved, "reason": "so"}  # type: ignore[assignment]
        sent = read_chat({"id": "t1", "messages": [{"role": "assistant", "parts": [{"type": "step-start"}, part]}]})
        assert sent.answers == {asked["approvalId"]: PageAnswer(approved, "so")}
        await thread.decide(decide_by_answers(await thread.approvals(), sent.answers, by="web"))
        more = await encode_run(thread.resume_stream(), UiStreamEncoder())
        assert more[0]["messageId"] == frames[0]["messageId"]
        assert last in kinds(more)
        assert more[-1]["finishReason"] == "stop"

    asyncio.run(go())


def test_an_answer_to_an_earlier_question_is_stale_whatever_waits_now() -> None:
    async def go() -> None:
        thread = harness_of([ERASE, calls(ToolCall("c2", "erase", '{"path":"/y"}')), "Done."]).thread()
        await ask(thread, UiStreamEncoder())
        (first,) = await thread.approvals()
        await thread.decide({first.key: Decision("reject")})
        await thread.resume()
        with pytest.raises(ApprovalStale, match=r"no longer waits: it is already decided\. Still waiting: c2"):
            decide_by_answers(await thread.approvals(), {f"{first.id}:{first.key}": PageAnswer(True)}, by="web")

    asyncio.run(go())


def test_what_was_retracted_is_taken_off_and_the_step_goes_on() -> None:
    frames = encode_all(
        UiStreamEncoder(), *begin(), thought("Hm"), text("It is ve"), retracted(), request(2), text("It is cold."),
        finished(TextBlock("It is cold.")),
    )  # fmt: skip
    assert kinds(frames) == [
        "start", "start-step", "reasoning-start", "reasoning-delta", "reasoning-end", "text-start", "text-delta", "text-end",
        "reset-step", "text-start", "text-delta", "text-end",
    ]  # fmt: skip
    assert kinds(encode_all(UiStreamEncoder(), *begin(), retracted(), request(2))) == ["start", "start-step"]


def test_where_pieces_were_left_out_or_calls_renamed_the_whole_message_takes_their_place() -> None:
    whole = finished(TextBlock("All of it."), ToolCall("c9", "look", "{}"))
    for shown in ((text("All"), omitted()), (text("All"), arguments("other"))):
        frames = encode_all(UiStreamEncoder(), *begin(), *shown, whole)
        after = frames[kinds(frames).index("reset-step") :]
        assert kinds(after) == ["reset-step", "text-start", "text-delta", "text-end", "tool-input-available"]
        assert after[2]["delta"] == "All of it."
    silent = encode_all(UiStreamEncoder(), *begin(), whole)
    assert kinds(silent)[2:] == ["text-start", "text-delta", "text-end", "tool-input-available"]


def test_runs_inside_calls_are_not_shown() -> None:
    inner = st.Place(run="r2", thread="t2", parent_run="r1", parent_call="c1")
    assert encode_all(UiStreamEncoder(), st.TextStreamed(place=inner, sequence=1, text="secret")) == []


def test_a_failure_closes_what_is_open_and_says_why() -> None:
    frames = encode_all(UiStreamEncoder(), *begin(), text("It is"), failed(AuthFailed("The key is wrong.")))
    assert kinds(frames)[-4:] == ["text-end", "finish-step", "error", "finish"]
    assert str(frames[-2]["errorText"]).startswith("The key is wrong.")


def test_a_chat_is_read_with_its_files_and_its_wish_for_another_answer() -> None:
    parts = [{"type": "text", "text": "Look."}, {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}]
    found = read_chat({"id": "t1", "trigger": "regenerate-message", "messages": [{"role": "user", "parts": parts}]})
    assert found.prompt == (TextBlock("Look."), ImageBlock(Inline("AAAA"), "image/png"))
    assert found.again


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "t1"},
        {"id": "../t1", "messages": [{"role": "user", "parts": [{"type": "text", "text": "x"}]}]},
        {"id": "t1", "messages": [{"role": "user", "parts": []}]},
        {"id": "t1", "messages": [{"role": "assistant", "parts": [{"state": "approval-requested"}]}]},
        {"id": "t1", "messages": [{"role": "user", "parts": [{"type": "file", "url": "file:///etc/passwd"}]}]},
        {"id": "t1", "messages": "no"},
        {"id": 7, "messages": [7]},
    ],
)
def test_a_request_that_asks_for_nothing_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        read_chat(body)
