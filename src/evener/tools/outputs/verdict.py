"""Decides what an answer of a model means for a run that requires a final answer of some shape. Pure: it performs nothing.

text               a turn without calls is final: its text is the answer
native, prompted   a turn without calls is final: its text must fit; with calls it is not final
tool               one call of `final_result`, and no other call beside it, is final: its arguments must fit
"""

from collections.abc import Collection
from typing import Literal

import msgspec

from evener.encodings.forms import FINAL_RESULT
from evener.tools.outputs.shape import Accepted, OutputShape
from evener.tools.schema import Problem
from evener.transcript.ask import OutputForm
from evener.transcript.blocks import ToolCall
from evener.transcript.reply import Reply, StopReason

UNDER_WAY: tuple[StopReason, ...] = ("paused", "pending")
CUT_OFF = "The answer was cut off ({}) before it was complete. Raise max_output_tokens, or ask for less."
UNFINISHED: dict[StopReason, str] = {
    "length": CUT_OFF.format("the output limit was reached"),
    "context_full": CUT_OFF.format("the context window is full"),
    "refusal": "The model declined to answer",
    "cancelled": "The provider cancelled the answer. Ask again.",
}
"""Stops after which a text is no answer, even if it happens to fit: a number that was cut off is still a number."""


class Final(msgspec.Struct, frozen=True):
    """The run has its answer: `value`, and the text from which it was read."""

    value: object
    text: str


class Correct(msgspec.Struct, frozen=True):
    """The model must correct its answer. `message` says how: it is sent as the user, or as the result of each of these
    `calls`.

    Other calls of the same turn are ordinary ones, and run.
    """

    problems: tuple[Problem, ...]
    by: Literal["user", "tool"]
    message: str
    calls: tuple[str, ...] = ()


class Calls(msgspec.Struct, frozen=True):
    """Not final: calls must run first, or the provider continues the turn."""


class Unexpected(msgspec.Struct, frozen=True):
    """There is no answer, and a correction would not help."""

    why: str


Verdict = Final | Correct | Calls | Unexpected


def judge(
    reply: Reply, output_text: str, *, shape: OutputShape | None, form: OutputForm = "", tool_names: Collection[str] = ()
) -> Verdict:
    """Return what this answer means. Without a shape its text is the answer, whatever it is.

    `output_text` is what the encodings read out of the reply: the bare JSON text. `form` is the one that was in fact used
    (`Prepared.form`). `tool_names` are the ordinary tools on offer.
    """
    if reply.stop.reason in UNDER_WAY or reply.awaited:
        return Calls()
    finals = _finals(reply, form, tool_names) if shape is not None else ()
    if reply.calls and not finals:
        return Calls()
    if shape is None:
        return Final(reply.text, reply.text)
    if reply.stop.reason in UNFINISHED:
        return Unexpected(_explain_stop(reply))
    wrong = _misplacement(reply, finals, form)
    if wrong:
        return _correction((Problem("", wrong),), finals, shape, form)
    found = shape.read(output_text)
    if isinstance(found, Accepted):
        return Final(found.value, output_text)
    return _correction(found, finals, shape, form)


def _finals(reply: Reply, form: OutputForm, tool_names: Collection[str]) -> tuple[ToolCall, ...]:
    """Return the calls that mean the final answer. A model may remember them from earlier turns where they are not offered."""
    if form != "tool" and FINAL_RESULT in tool_names:
        return ()
    return tuple(call for call in reply.calls if call.name == FINAL_RESULT)


def _misplacement(reply: Reply, finals: tuple[ToolCall, ...], form: OutputForm) -> str:
    """Return why the answer stands in the wrong place; empty when it does not."""
    if form != "tool":
        return f"there is no tool {FINAL_RESULT} now; the text of the turn is the answer" if finals else ""
    if not finals:
        return f"it was written as text; it must be the arguments of a call of {FINAL_RESULT}"
    if len(finals) > 1:
        return f"{FINAL_RESULT} was called {len(finals)} times; it must be called once"
    if len(reply.calls) > 1:
        return f"{FINAL_RESULT} was called together with other tools, before their results were known; it must be called alone"
    return ""


def _correction(problems: tuple[Problem, ...], finals: tuple[ToolCall, ...], shape: OutputShape, form: OutputForm) -> Correct:
    message = shape.problems_text(problems, form=form)
    return Correct(problems, "tool" if finals else "user", message, tuple(call.id for call in finals))


def _explain_stop(reply: Reply) -> str:
    why = UNFINISHED[reply.stop.reason]
    if reply.stop.reason != "refusal":
        return why
    said = reply.stop.detail or reply.text.strip()
    return f"{why}: {said[:500]}" if said else f"{why}."
