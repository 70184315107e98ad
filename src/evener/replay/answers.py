"""The model of a recording: gives the recorded answers, and fails where it failed. Sends nothing."""

import asyncio
from collections.abc import Callable, Iterable
from decimal import Decimal

from msgspec.structs import replace

from evener import events as ev
from evener.driver.record import reply_events
from evener.encodings.buffer import strip_fence
from evener.encodings.forms import FINAL_RESULT
from evener.encodings.json import unwrap
from evener.errors import EvenerError, ProviderError
from evener.model.seam import GivenAnswer
from evener.observe.cost import Cost
from evener.replay.difference import compare_events
from evener.replay.moments import hit_of
from evener.replay.tape import Tape
from evener.tools.outputs import OutputShape
from evener.transcript.ask import Ask, HostedTool, OutputForm, OutputSchema, ToolSpec
from evener.transcript.blocks import Origin
from evener.transcript.delta import Delta, TextDelta
from evener.transcript.reply import Reply, Usage
from evener.transcript.transcript import Transcript

FORMS: tuple[OutputForm, ...] = ("native", "tool", "prompted")


class RecordedModel:
    """Gives the recorded answers of the model with this name, and fails where it failed."""

    def __init__(self, name: str, tape: Tape, *, fetches: bool, shape: OutputShape | None, tools: Iterable[str]) -> None:
        self._name = name
        self._tape = tape
        self._fetches = fetches
        self._shape = shape
        self._tools = frozenset(tools)

    @property
    def name(self) -> str:
        return self._name

    @property
    def fetches(self) -> bool:
        return self._fetches

    def ask(
        self, transcript: Transcript, tools: Iterable[ToolSpec | HostedTool] = (), *, output: OutputSchema | None = None
    ) -> Ask:
        return Ask(transcript, Origin(wire="recorded", provider="recorded", model=self._name), tuple(tools), output=output)

    def most_cost(self, ask: Ask) -> Decimal:
        """Return the amount that was reserved for the recorded request, or more than was left if there was no room for it."""
        del ask
        for event in self._tape.ahead():
            match event:
                case ev.ModelCalled(most=most):
                    return most
                case ev.Finished() | ev.ApprovalAsked():
                    hit = hit_of(event)
                    return Decimal(hit.wanted) if hit is not None and hit.which == "cost" else Decimal(0)
        return Decimal(0)

    def capped(self, ask: Ask, money: Decimal) -> Ask | None:
        """Return None: in the recording, too, no shorter answer was possible."""
        del ask, money
        return None

    def stream(self, ask: Ask, *, after: object = None) -> "_RecordedStream":
        """Return the next answer of the recording."""
        del ask, after
        return _RecordedStream(self._tape, self._answer)

    def _answer(self, event: ev.Replied) -> GivenAnswer:
        message = event.message
        notices = () if self._shape else tuple(("malformed_call", problem) for problem in event.problems)
        reply = Reply(message.blocks, event.stop, message.usage or Usage(), event.reply, "", notices)
        answer = GivenAnswer(
            reply=reply, message=message, cost=Cost(event.cost, event.exact), losses=event.losses, seconds=event.seconds,
            first=event.first, tries=event.tries,
        )  # fmt: skip
        return answer if self._shape is None else self._shaped(event, answer, self._shape)

    def _shaped(self, event: ev.Replied, answer: GivenAnswer, shape: OutputShape) -> GivenAnswer:
        """Return the answer in the form that gives the recorded event."""
        tried = [
            replace(answer, form=form, output=text)
            for form in FORMS
            for text in dict.fromkeys((event.output, *_texts(answer.reply, form)))
        ]
        for one in tried:
            told, *_ = reply_events(one, shape, self._tools)
            if _is_same(told, event):
                return one
        malformed = tuple(("malformed_call", problem) for problem in event.problems)
        one = replace(tried[0], reply=replace(answer.reply, notices=malformed))
        told, *_ = reply_events(one, shape, self._tools)
        return one if _is_same(told, event) else tried[0]


def _is_same(told: ev.Replied, recorded: ev.Replied) -> bool:
    return not compare_events(recorded, replace(told, at=recorded.at, request=recorded.request), number=0)


def _texts(reply: Reply, form: OutputForm) -> tuple[str, ...]:
    """Return the texts that may hold the structured answer in this form."""
    finals = [call.raw for call in reply.calls if call.name == FINAL_RESULT]
    text = finals[-1] if finals and form == "tool" else strip_fence(reply.text) if form != "native" else reply.text
    return text, unwrap(text)


class _RecordedStream:
    """One answer of the recording, in progress."""

    def __init__(self, tape: Tape, answer_of: Callable[[ev.Replied], GivenAnswer]) -> None:
        self._tape = tape
        self._answer_of = answer_of
        self._shown = False
        self._answer: GivenAnswer | None = None

    @property
    def form(self) -> OutputForm:
        return ""

    @property
    def answer(self) -> GivenAnswer:
        if self._answer is None:
            raise EvenerError("The recorded answer was not read yet. Read it to its end first.")
        return self._answer

    async def read(self) -> list[Delta]:
        if self._tape.late:
            await asyncio.Event().wait()  # until the time of the run is over
        tape = self._tape
        found = tape.overtaken(_is_answer) or await tape.turn(_is_answer, _is_nothing, wanted="an answer of the model")
        match found:
            case ev.ModelFailed(shown=True) if not self._shown:
                self._shown = True
                return [TextDelta(0, "")]
            case ev.ModelFailed():
                raise failure_of(found)
            case ev.Replied():
                self._answer = self._answer_of(found)
        return []

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""


def _is_answer(event: ev.Event) -> bool:
    return isinstance(event, ev.Replied | ev.ModelFailed)


def _is_nothing(event: ev.Event) -> bool:
    del event
    return False


class _Played(EvenerError):
    """A recorded failure, with its message."""

    def __init__(self, event: ev.ModelFailed) -> None:
        Exception.__init__(self, event.message)
        self.text = event.message
        self.retryable = event.retryable
        self.retry_after = event.retry_after or None
        self.status = event.status

    def __str__(self) -> str:
        return self.text


def failure_of(event: ev.ModelFailed) -> EvenerError:
    """Return the error of the recording, of its class."""
    kind = _find_class(event.error, EvenerError) or (ProviderError if event.retry_after else EvenerError)
    made: type[_Played] = type(event.error, (_Played, kind), {})
    return made(event)


def _find_class(name: str, kind: type[EvenerError]) -> type[EvenerError] | None:
    if kind.__name__ == name:
        return kind
    return next((found for below in kind.__subclasses__() if (found := _find_class(name, below)) is not None), None)
