"""Turns a model's text into calls, delta by delta. Pure; it never raises on what a model wrote, and loses none of it.

Reasoning, usage and everything else pass through. Blocks are renumbered, because one text may contain several.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from evener.encodings.buffer import AnswerBuffer, Wait
from evener.encodings.json import drop_nulls, read_json
from evener.encodings.own_tools import OwnReader
from evener.encodings.prepared import Plan, Prepared
from evener.encodings.react import read_react
from evener.encodings.xml import read_xml
from evener.errors import TruncatedStream
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
from evener.transcript.repair import make_id
from evener.wire.prefix import dumps

STRIDE = 1 << 20
"""How many blocks may come out of one."""

ENDS = ("done", "stop_sequence", "tools", "other")
"""Reasons to stop that are the model's own: only then is its answer held against the choice."""

HALF = "The answer ended within a call, or within the envelope around its calls. None of them runs; ask again."

Numbered = ReasoningDelta | CallBegun | ArgumentsDelta | CallEnded | HostedAdded | MediaAdded | SealAdded


def reader(prepared: Prepared) -> "Reader | OwnReader | None":
    """Return the reader for the answer to a prepared ask; None if the answer needs no reading."""
    plan = prepared.plan
    if plan is None or plan.style is None:
        return None
    if plan.style.own:
        return OwnReader(plan.style.own)
    return Reader(plan, prepared.seed) if plan.style.offered else None


class Reader:
    """Feed deltas, get deltas. `Stopped` or `Failed` is the end of input; what follows it passes through."""

    def __init__(self, plan: Plan, seed: str) -> None:
        self._plan = plan
        self._seed = seed
        self._texts: dict[int, AnswerBuffer] = {}
        self._hung: dict[int, list[SealAdded | CitationAdded]] = {}  # on a text, until it is known what that is
        self._called: list[str] = []

    def feed(self, deltas: list[Delta]) -> list[Delta]:
        """Return the deltas that no later text can change."""
        found: list[Delta] = []
        for delta in deltas:
            match delta:
                case TextDelta(index, text):
                    found += self._text(index).feed(text)
                case SealAdded(index, "text") | CitationAdded(index):
                    self._text(index)
                    self._hung.setdefault(index, []).append(delta)
                case Stopped():
                    cut = self._close(found)
                    found += self._judge(delta, cut=cut) if delta.reason in ENDS else [delta]
                case Failed():
                    self._close(found)
                    found.append(delta)
                case _:
                    found.append(_renumber(delta))
        return found

    def _text(self, index: int) -> AnswerBuffer:
        if index not in self._texts:
            self._texts[index] = AnswerBuffer(_choose_reader(self._plan), index * STRIDE, self._begin_call, self._end_call)
        return self._texts[index]

    def _begin_call(self, name: str) -> str:
        self._called.append(name)
        return make_id(self._seed, len(self._called) - 1)

    def _end_call(self, raw: str) -> str:
        optional = self._plan.optional.get(self._called[-1])
        return drop_nulls(raw, optional) if optional else raw

    def _close(self, found: list[Delta]) -> bool:
        """End the texts. True if one was cut off although the answer contains complete calls."""
        for index, text in sorted(self._texts.items()):
            found += text.close()
            for hung in self._hung.get(index, ()):
                if not text.touched:
                    found.append(msgspec.structs.replace(hung, index=text.base))
                elif isinstance(hung, SealAdded):
                    found.append(Notice("text_seal", hung.data))
        texts = self._texts.values()
        cut = any(text.cut for text in texts) and any(text.runnable for text in texts)
        self._texts, self._hung = {}, {}
        return cut

    def _judge(self, stopped: Stopped, *, cut: bool) -> list[Delta]:
        """Check the calls against the tool choice.

        An answer with calls has stopped for them; an incomplete call does not count.
        """
        if cut:
            return [Failed(TruncatedStream(HALF))]
        end = Stopped("tools", stopped.raw, stopped.detail) if self._called else stopped
        why = _find_broken_rule(self._plan.wanted, self._called)
        return [Notice("choice_violated", dumps({"rule": why, "called": self._called}).decode()), end] if why else [end]


def _find_broken_rule(wanted: Choice, called: list[str]) -> str:
    """Return the rule of the tool choice that the answer violates; empty if it violates none."""
    if wanted.mode == "none" and called:
        return "no tool was to be called"
    if wanted.mode in ("required", "named") and not called:
        return "a tool was to be called"
    if wanted.names and any(name not in wanted.names for name in called):
        return f"only {', '.join(wanted.names)} was to be called"
    if wanted.parallel is False and len(called) > 1:
        return "only one tool was to be called at a time"
    return ""


def _renumber(delta: Delta) -> Delta:
    """Return the delta with the new index of its block."""
    return msgspec.structs.replace(delta, index=delta.index * STRIDE) if isinstance(delta, Numbered) else delta


def _choose_reader(plan: Plan) -> Callable[[AnswerBuffer], Wait[None]]:
    match plan.encoding:
        case "xml":
            return read_xml
        case "react":
            return read_react
        case _:
            style = plan.style
            texts = style is None or style.final == "text"
            return partial(read_json, wrapped=style is not None and style.wrapped, texts=texts)
