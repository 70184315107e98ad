"""Reads Thought / Action / Action Input / Final Answer. Pure; any cut of the text gives the same pieces, and nothing raises.

A label counts where a line begins. Arguments end where their JSON object does. What a model invents after `Observation:` is
no result and no text: it becomes a notice.
"""

import re
from typing import Literal

from evener.encodings.buffer import LINE, AnswerBuffer, ReadState, Span, bare, marker

__all__ = [
    "ReactReader",
]


LABELS = ("Thought", "Action Input", "Action", "Observation", "Final Answer")
LABEL = marker(LINE, LABELS, after=r"[ \t]*:")
INPUT = re.compile(r"\s*Action Input[ \t]*:")
BEGUN_INPUT = re.compile(
    r"\s*(?:" + "|".join("Action Input"[:size] for size in range(len("Action Input"), 0, -1)) + r")?[ \t]*\Z"
)
EMPTY = re.compile(r"(?:" + "|".join(LABELS) + r")[ \t]{0,40}:")
BEGUN_EMPTY = re.compile(
    r"(?:" + "|".join(label[:size] for label in LABELS for size in range(len(label), 0, -1)) + r")[ \t]{0,40}\Z"
)
LEAD = re.compile(r"(?:```\w*[ \t]*\r?\n\s*)?(?=[^\s`])")
BEGUN_LEAD = re.compile(r"(?:`{1,2}|```\w*[ \t]*\r?(?:\n\s*)?)?\Z")
TRAIL = re.compile(r"\s*```")
BEGUN_TRAIL = re.compile(r"\s*`{0,2}\Z")
NEXT = re.compile(r"\n[ \t]{0,40}(?:" + "|".join(LABELS) + r")[ \t]{0,40}:")
LONGEST = 100  # characters of a label with what is around it
QUOTES = " \t\r`\"'*"


class ReactReader:
    """The states of the reader; `start` is the first."""

    def __init__(self, tape: AnswerBuffer) -> None:
        self._tape = tape
        self._kind: Literal["text", "thought"] = "text"
        self._span = Span()
        self._body: list[str] = []
        self._looked = 0  # where in the held text no label stands
        self._invented: list[str] = []
        self._fenced = False  # a label stood behind the start of a code fence
        self._below = False  # the arguments do not stand in the line of their label

    def start(self) -> ReadState | None:
        """Text or a thought, up to the next label."""
        tape = self._tape
        if tape.ended and self._fenced and not tape.in_fence and tape.held.strip() == "```":
            tape.take(len(tape.held))
        found = tape.say_until(LABEL, self._kind)
        if found is None:
            return None
        self._fenced = self._fenced or bool(found["fence"])
        word = found["word"]
        if word == "Action Input" or (word == "Observation" and not tape.calls):  # it answers nothing: text
            tape.say(tape.take(found.end() - found.start()), self._kind)
            return self.start
        tape.take(found.end() - found.start())
        if word == "Action":
            return self._action
        tape.label()
        self._kind = "thought" if word == "Thought" else "text"
        return self._dream if word == "Observation" else self.start

    def _dream(self) -> ReadState | None:
        """What a model makes up instead of waiting for it."""
        tape = self._tape
        self._invented.append(tape.take(len(tape.held)))
        if tape.ended and (text := "".join(self._invented).strip()):
            tape.note("invented_result", text)
        return None

    def _action(self) -> ReadState | None:
        """The name of the tool, up to the end of the line."""
        tape = self._tape
        line, end, _ = tape.held.partition("\n")
        if not end and not tape.ended:
            return None
        name = line.strip(QUOTES)
        if not name:
            tape.note("malformed_call", f"Action:{line}")
            tape.say(f"Action:{tape.take(len(line))}", self._kind)
            return self.start
        tape.take(len(line))
        tape.call(name)
        self._kind, self._span, self._body, self._looked, self._below = "text", Span(), [], 0, False
        return self._input

    def _input(self) -> ReadState | None:
        tape = self._tape
        found = INPUT.match(tape.held)
        if found:
            tape.take(found.end())
            return self._lead
        if BEGUN_INPUT.match(tape.held) and not tape.ended:
            return None
        tape.finish("{}")
        return self.start

    def _lead(self) -> ReadState | None:
        """White space and a fence before the arguments; where a label stands in their place there are none."""
        tape = self._tape
        space = tape.take(len(tape.held) - len(tape.held.lstrip()))
        self._below = self._below or "\n" in space
        if self._below and EMPTY.match(tape.held):
            tape.seen = "\n"
            tape.finish("{}")
            return self.start
        if self._below and BEGUN_EMPTY.match(tape.held) and not tape.ended:
            return None
        found = LEAD.match(tape.held)
        if not found and not tape.ended and BEGUN_LEAD.match(tape.held):
            return None
        tape.take(found.end() if found else 0)
        return self._object if tape.held[:1] == "{" else self._words

    def _object(self) -> ReadState | None:
        """Arguments that are a JSON object."""
        tape = self._tape
        size = self._span.feed(tape.held)
        text = tape.take(len(tape.held) if size is None else size)
        self._body.append(text)
        tape.give(text)
        if size is not None:
            tape.finish("".join(self._body))
            return self._trail
        return self._unclosed() if tape.ended else None

    def _words(self) -> ReadState | None:
        """Arguments that are none: kept as they are, up to the next label."""
        tape = self._tape
        found = NEXT.search(tape.held, max(0, self._looked - LONGEST))
        if not found and not tape.ended:
            self._looked = len(tape.held)
            return None
        tape.finish(bare(tape.take(found.start() if found else len(tape.held))) or "{}")
        return self.start

    def _unclosed(self) -> ReadState:
        """An object that never ends, ends before the next label."""
        tape = self._tape
        body = "".join(self._body)
        found = NEXT.search(body)
        tape.held = body[found.start() :] if found else ""
        tape.finish(bare(body[: found.start()] if found else body))
        return self.start

    def _trail(self) -> ReadState | None:
        """The end of a fence behind the arguments."""
        tape = self._tape
        found = TRAIL.match(tape.held)
        if not found and not tape.ended and BEGUN_TRAIL.match(tape.held):
            return None
        tape.take(found.end() if found else 0)
        self._fenced = self._fenced and not found
        return self.start
