"""How a run inside a call says that it waits: in place of the result of that call. Pure."""

from evener.events import InnerQuestion, Question
from evener.result import Approval
from evener.tools.result import Envelope, Waits

__all__ = ["waiting"]


def waiting(thread: str, approvals: tuple[Approval, ...]) -> Envelope:
    """Return what a tool returns whose inner run waits for these."""
    inner = tuple(
        InnerQuestion(
            one.thread, one.id, one.interrupt, Question(one.key, one.digest, one.why, one.rule),
            one.call.name if one.call else "", one.call.raw if one.call else "", one.expires,
        )
        for one in approvals
    )  # fmt: skip
    return Envelope(False, waits=Waits(thread, inner))
