"""Turns a model's text into calls, delta by delta. Pure; it never raises on what a model wrote, and loses none of it.

Reasoning, usage and all else pass through. Blocks are numbered anew, because one text may hold several.
"""

import msgspec

from evener.encodings.buffer import AnswerBuffer, ArgumentsEnded, ArgumentsGiven, Called, Noted, ReadPiece, ReadState, Said
from evener.encodings.json import JsonReader, without_nulls
from evener.encodings.prepared import Plan, Prepared
from evener.encodings.react import ReactReader
from evener.encodings.xml import XmlReader
from evener.transcript.ask import Choice
from evener.transcript.delta import (
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    CitationAdded,
    Delta,
    Failed,
    HostedAdded,
    MediaAdded,
    Notice,
    ReasoningDelta,
    SealAdded,
    Stopped,
    TextDelta,
)
from evener.wire.prefix import dumps
from evener.wire.request import make_id

__all__ = ["Reader", "reader"]

STRIDE = 1 << 20
"""How many blocks may come out of one."""

AT_ONCE = 16 * 1024
"""Characters that are put on the tape at once: each step takes from the front of what it holds, and copies the rest."""

ENDS = ("done", "stop_sequence", "tools", "other")
"""Reasons to stop that are the model's own: only then is its answer held against the choice."""

Numbered = ReasoningDelta | CallBegun | ArgumentsDelta | CallEnded | HostedAdded | MediaAdded | SealAdded


def reader(prepared: Prepared) -> "Reader | None":
    """The reader of the answer to a prepared ask; None where there is nothing to read out of the text."""
    plan = prepared.plan
    if plan is None or plan.style is None or not plan.style.offered:
        return None
    return Reader(plan, prepared.seed)


class _Text:
    """One text block of the answer while it is read, and what hangs on it until it is known what the text is."""

    def __init__(self, plan: Plan) -> None:
        self.tape = AnswerBuffer()
        self.state = _start(self.tape, plan)
        self.slot = -1  # of the block that is open
        self.kind = ""
        self.call = -1  # the block of the last call: text may come before that call is over
        self.hung: list[SealAdded | CitationAdded] = []

    def feed(self, text: str) -> list[ReadPiece]:
        for start in range(0, len(text), AT_ONCE):
            self.tape.held += text[start : start + AT_ONCE]
            self.state = self.tape.run(self.state)
        return self.tape.pieces()

    def close(self) -> list[ReadPiece]:
        self.tape.ended = True
        self.state = self.tape.run(self.state)
        self.tape.close()
        return self.tape.pieces()

    def place(self, kind: str) -> int:
        """The number of the open block of this kind; the first is kept for text, which a seal may hang on."""
        if kind != self.kind or kind == "call":
            self.slot = max(self.slot + 1, 0 if kind == "text" else 1)
            self.kind = kind
        return self.slot


def _start(tape: AnswerBuffer, plan: Plan) -> ReadState:
    match plan.encoding:
        case "xml":
            return XmlReader(tape).start
        case "react":
            return ReactReader(tape).start
        case _:
            style = plan.style
            texts = style is None or style.final == "text"
            return JsonReader(tape, wrapped=style is not None and style.wrapped, texts=texts).start


class Reader:
    """Feed deltas, get deltas. `Stopped` or `Failed` is the end of input; what follows it passes through."""

    def __init__(self, plan: Plan, seed: str) -> None:
        self._plan = plan
        self._seed = seed
        self._texts: dict[int, _Text] = {}
        self._called: list[str] = []

    def feed(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas that these make certain."""
        found: list[Delta] = []
        for delta in deltas:
            match delta:
                case TextDelta(index, text):
                    block = self._text(index)
                    self._write(block.feed(text), index, block, found)
                case SealAdded(index, "text") | CitationAdded(index):
                    self._text(index).hung.append(delta)
                case Stopped():
                    self._close(found)
                    found += self._violations() if delta.reason in ENDS else ()
                    found.append(self._stopped(delta))
                case Failed():
                    self._close(found)
                    found.append(delta)
                case _:
                    found.append(_moved(delta))
        return found

    def _text(self, index: int) -> _Text:
        if index not in self._texts:
            self._texts[index] = _Text(self._plan)
        return self._texts[index]

    def _close(self, found: list[Delta]) -> None:
        for index, block in sorted(self._texts.items()):
            self._write(block.close(), index, block, found)
            for hung in block.hung:
                if not block.tape.touched:
                    found.append(msgspec.structs.replace(hung, index=index * STRIDE))
                elif isinstance(hung, SealAdded):
                    found.append(Notice("text_seal", hung.data))
        self._texts = {}

    def _write(self, pieces: list[ReadPiece], index: int, block: _Text, found: list[Delta]) -> None:
        base = index * STRIDE
        for piece in pieces:
            match piece:
                case Said(text, "thought"):
                    found.append(ReasoningDelta(base + block.place("thought"), text))
                case Said(text):
                    found.append(TextDelta(base + block.place("text"), text))
                case Called(name):
                    id = make_id(self._seed, len(self._called))
                    self._called.append(name)
                    block.call = block.place("call")
                    found.append(CallBegun(base + block.call, id, name))
                case ArgumentsGiven(text):
                    found.append(ArgumentsDelta(base + block.call, text))
                case ArgumentsEnded(raw):
                    optional = self._plan.optional.get(self._called[-1])
                    found.append(CallEnded(base + block.call, without_nulls(raw, optional) if optional else raw))
                case Noted(name, text):
                    found.append(Notice(name, dumps({"text": text}).decode()))

    def _stopped(self, stopped: Stopped) -> Stopped:
        if self._called and stopped.reason in ENDS:
            return Stopped("tools", stopped.raw, stopped.detail)
        return stopped

    def _violations(self) -> list[Delta]:
        why = _broken_rule(self._plan.wanted, self._called)
        return [Notice("choice_violated", dumps({"rule": why, "called": self._called}).decode())] if why else []


def _broken_rule(wanted: Choice, called: list[str]) -> str:
    """The rule about calls that an answer breaks; empty when it breaks none."""
    if wanted.mode == "none" and called:
        return "no tool was to be called"
    if wanted.mode in ("required", "named") and not called:
        return "a tool was to be called"
    if wanted.names and any(name not in wanted.names for name in called):
        return f"only {', '.join(wanted.names)} was to be called"
    if wanted.parallel is False and len(called) > 1:
        return "only one tool was to be called at a time"
    return ""


def _moved(delta: Delta) -> Delta:
    """The delta under its block's new number."""
    return msgspec.structs.replace(delta, index=delta.index * STRIDE) if isinstance(delta, Numbered) else delta
