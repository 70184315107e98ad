"""A structured answer while it is streamed: what is there of it so far, as plain JSON values. For showing, never for use. Pure.

It takes the same detours as the reading of a whole answer: a code fence and thoughts before a prompted one, the object around
a value that is none, the last call of `final_result`. What it shows is not checked against the shape.
"""

import re
from collections.abc import Iterable

from evener.encodings.envelope import VALUE
from evener.encodings.forms import FINAL_RESULT, THOUGHT_END
from evener.tools.outputs.growing import Growing
from evener.tools.outputs.shape import OutputShape
from evener.transcript.ask import OutputForm
from evener.transcript.delta import ArgumentsDelta, CallEnded, CallStarted, Delta, TextDelta

__all__ = ["PartialReader"]

FENCE = re.compile(r"```[^\n`]{0,100}\n")
BEGUN_FENCE = re.compile(r"(?:`{0,2}|```[^\n`]{0,100})\Z")


class PartialReader:
    """One answer under way. Give it the deltas of a turn (`add`), or the text of the answer alone (`feed`).

    `wrapped` says whether the value stands in an object of its own, as `Prepared.plan` knows; None takes it that everything
    but an object may. The `value` is the reader's own and grows: `snapshot` is for keeping.
    """

    def __init__(self, shape: OutputShape, *, form: OutputForm = "", wrapped: bool | None = None) -> None:
        self._form = form
        self._wrapped = not shape.is_object if wrapped is None else wrapped
        self._call = -1  # the number of the block with the call that counts
        self._restart()

    def _restart(self) -> None:
        self._growing = Growing()
        self._lead: str | None = "" if self._form == "prompted" else None
        self._tail = ""  # of what was read, as far as it may begin the end of thoughts
        self._fed = False

    @property
    def begun(self) -> bool:
        """Whether there is a value yet."""
        if not self._growing.begun:
            return False
        return not (self._wrapped and self._growing.value == {} and not self._growing.ended)

    @property
    def value(self) -> object:
        """The answer so far; None where there is none. It grows with what is fed."""
        return self._inner(self._growing.value) if self.begun else None

    def snapshot(self) -> object:
        """The answer so far, to keep: what is fed later does not change it."""
        return self._inner(self._growing.snapshot()) if self.begun else None

    def add(self, deltas: Iterable[Delta]) -> bool:
        """More of the turn. Whether the value has changed."""
        changed = False
        for delta in deltas:
            match delta:
                case TextDelta(_, text) if self._form != "tool":
                    changed = self.feed(text) or changed
                case CallStarted(index, _, name) if self._form == "tool" and name == FINAL_RESULT:
                    changed = self.begun or changed
                    self._call = index
                    self._restart()
                case ArgumentsDelta(index, text) if index == self._call:
                    changed = self.feed(text) or changed
                case CallEnded(index, raw) if index == self._call and not self._fed:
                    changed = self.feed(raw) or changed
        return changed

    def feed(self, text: str) -> bool:
        """More of the answer's text. Whether the value has changed."""
        self._fed = True
        if self._form != "prompted":
            return self._growing.feed(text)
        read = self._tail + text
        _, ended, behind = read.rpartition(THOUGHT_END)
        changed = bool(ended) and self.begun
        if ended:
            self._restart()
            self._fed, text, read = True, behind, behind
        self._tail = read[-len(THOUGHT_END) + 1 :]
        return self._prompted(text) or changed

    def close(self) -> bool:
        """The answer has ended: a number that is all of it is whole. Whether the value has changed."""
        lead, self._lead = self._lead, None
        changed = self._growing.feed(lead) if lead else False
        return self._growing.close() or changed

    def _prompted(self, text: str) -> bool:
        """Behind a code fence, if there is one."""
        if self._lead is None:
            return self._growing.feed(text)
        self._lead = (self._lead + text).lstrip()
        fence = FENCE.match(self._lead)
        if fence is None and BEGUN_FENCE.match(self._lead):
            return False
        text, self._lead = self._lead[fence.end() if fence else 0 :], None
        return self._growing.feed(text)

    def _inner(self, value: object) -> object:
        return value[VALUE] if self._wrapped and isinstance(value, dict) and VALUE in value else value
