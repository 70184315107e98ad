"""How a run inside a call says that it waits: as the result of that call, which then is none. Pure."""

import msgspec

from evener.events import CallFinished, CallPaused, InnerQuestion, Question
from evener.result import Approval
from evener.tools.result import Envelope

__all__ = ["paused_of", "waiting"]

MARK = "evener_waits"


class _Waits(msgspec.Struct, frozen=True):
    thread: str
    inner: tuple[InnerQuestion, ...]


def waiting(thread: str, approvals: tuple[Approval, ...]) -> Envelope:
    """What a tool returns whose inner run waits for these."""
    inner = tuple(
        InnerQuestion(
            one.thread, one.id, one.interrupt, Question(one.key, one.digest, one.why, one.rule),
            one.call.name if one.call else "", one.call.raw if one.call else "", one.expires,
        )
        for one in approvals
    )  # fmt: skip
    meta = msgspec.json.encode({MARK: _Waits(thread, inner)}).decode()
    return Envelope(False, (), meta)


def paused_of(done: CallFinished) -> CallPaused | None:
    """The event for a call that only waits; None for one that has ended."""
    if MARK not in done.metadata:
        return None
    found = msgspec.json.decode(done.metadata, type=dict[str, msgspec.Raw])
    if MARK not in found:
        return None
    waits = msgspec.json.decode(found[MARK], type=_Waits)
    return CallPaused(at=done.at, call=done.call, thread=waits.thread, inner=waits.inner)
