"""A model without a wire: its answers come from a script. For tests of agents; the fake servers test the bytes."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

from evener.encodings.forms import FINAL_RESULT
from evener.errors import EvenerError, UsageError
from evener.model.seam import GivenAnswer
from evener.observe.cost import Cost
from evener.transcript.ask import Ask, HostedTool, OutputForm, OutputSchema, ToolSpec
from evener.transcript.blocks import Block, Origin, TextBlock, ToolCall, check_type
from evener.transcript.delta import Delta
from evener.transcript.message import Message
from evener.transcript.reply import Reply, Stop, Usage
from evener.transcript.transcript import Transcript
from evener.wire.stream import deltas_of

Line = Reply | EvenerError | str
Script = Sequence[Line] | Callable[[Ask], Line]


def says(text: str, *, usage: Usage | None = None) -> Reply:
    """Return a final answer."""
    return Reply((TextBlock(text),), Stop("done"), usage or Usage(10, 10, 0, 0, 5, 0))


def calls(*made: ToolCall, text: str = "", usage: Usage | None = None) -> Reply:
    """Return a turn that calls tools, with a text before them if there is one."""
    for call in made:
        check_type(call, (ToolCall,), "Each of the calls")
    blocks: tuple[Block, ...] = (*((TextBlock(text),) if text else ()), *made)
    return Reply(blocks, Stop("tools"), usage or Usage(10, 10, 0, 0, 5, 0))


class ScriptedModel:
    """`script` has its answers in order, or is a function of the ask: then the same request always gets the same answer.

    An entry is a reply, a text, or an error to raise. `asks` has every ask that it got. `price` is in US dollars per call.
    """

    def __init__(self, script: Script, *, name: str = "scripted:model", price: Decimal | None = None) -> None:
        if isinstance(script, str):
            raise UsageError("A script is a list of lines, or a function. Put the text into a list.")
        self._script = script
        self._name = name
        self._price = Cost() if price is None else Cost(price)
        self.asks: list[Ask] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def fetches(self) -> bool:
        return False

    def ask(
        self, transcript: Transcript, tools: Iterable[ToolSpec | HostedTool] = (), *, output: OutputSchema | None = None
    ) -> Ask:
        return Ask(transcript, Origin(wire="scripted", provider="scripted", model=self._name), tuple(tools), output=output)

    def most_cost(self, ask: Ask) -> Decimal:
        """Return the scripted cost."""
        del ask
        return self._price.amount

    def capped(self, ask: Ask, money: Decimal) -> Ask | None:
        """Return the ask if the scripted cost is at most `money`, else None."""
        return ask if self._price.amount <= money else None

    def stream(self, ask: Ask, *, after: object = None) -> "_ScriptedStream":
        """Return the next line, in pieces. `after` changes nothing."""
        del after
        self.asks.append(ask)
        return _ScriptedStream(self._line(ask), ask, self._price)

    def _line(self, ask: Ask) -> Line:
        if callable(self._script):
            return self._script(ask)
        if len(self.asks) > len(self._script):
            raise UsageError(
                f"The script of {self._name!r} has {len(self._script)} lines, and this is request {len(self.asks)}. Add lines."
            )
        return self._script[len(self.asks) - 1]


class _ScriptedStream:
    """One scripted call in progress. It lets other tasks run before each piece, as a real call does."""

    def __init__(self, line: Line, ask: Ask, price: Cost) -> None:
        if not isinstance(line, Reply | EvenerError | str):
            raise UsageError(
                "A line of a script is a text, a reply as in calls(ToolCall.of(...)), or an error of evener.errors; "
                f"not {type(line).__name__}."
            )
        self._line = says(line) if isinstance(line, str) else line
        self._ask = ask
        self._price = price
        self._pieces: list[Delta] | None = None

    @property
    def answer(self) -> GivenAnswer:
        if isinstance(self._line, EvenerError):
            raise self._line
        reply = self._line
        message = Message.from_assistant_response(reply, origin=self._ask.target)
        finals = [call.raw for call in reply.calls if call.name == FINAL_RESULT]
        output = finals[0] if finals and self.form == "tool" else reply.text
        return GivenAnswer(reply=reply, message=message, cost=self._price, output=output, form=self.form)

    @property
    def form(self) -> OutputForm:
        output = self._ask.output
        return "" if output is None else output.form or "native"

    async def read(self) -> list[Delta]:
        await asyncio.sleep(0)
        if isinstance(self._line, EvenerError):
            raise self._line
        if self._pieces is None:
            self._pieces = list(deltas_of(self._line))
        return [self._pieces.pop(0)] if self._pieces else []

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""
