"""Prints a run: text as it arrives, a structured answer, one JSON object, or one line of JSON per event. Decides nothing."""

import sys
from collections.abc import Iterable
from typing import Literal

import msgspec

from evener import streaming as st
from evener.cli.activity import Activity
from evener.cli.terminal import CleanOutput, print_bytes, print_json, say
from evener.encodings.forms import FINAL_RESULT
from evener.result import RunResult
from evener.transcript.loss import Loss


def result_document(result: RunResult) -> dict[str, object]:
    """Return the result of a run as a JSON object."""
    return {
        "text": result.text,
        "output": result.output,
        "stop": result.stop,
        "detail": result.detail,
        "usage": msgspec.structs.asdict(result.usage),
        "cost": {"amount": str(result.cost), "exact": result.exact},
        "seconds": result.seconds,
        "thread": result.thread,
        "run": result.run,
        "pending": [{"id": call.id, "name": call.name, "arguments": call.raw} for call in result.pending],
        "records": [
            {
                "id": record.call.id,
                "name": record.call.name,
                "arguments": record.call.raw,
                "ok": record.ok,
                "outcome": record.result.outcome if record.result else "not run",
                "content": msgspec.to_builtins(record.result.content) if record.result else [],
                "seconds": record.result.seconds if record.result else 0.0,
            }
            for record in result.records
        ],
        "requests": [msgspec.to_builtins(request) for request in result.requests],
        "losses": [msgspec.structs.asdict(loss) for loss in result.losses],
    }


def event_document(event: st.StreamEvent) -> dict[str, object]:
    """Return one event as a JSON object, tagged by `type`."""
    match event:
        case st.RunFinished(result=result):
            fields: dict[str, object] = {"result": result_document(result)}
        case st.RunFailed(error=error):
            fields = {"error": type(error).__name__, "message": str(error)}
        case _:
            fields = msgspec.to_builtins(event)
            fields.pop("place")
    kind = fields.pop("type", type(event).__struct_config__.tag)
    return {"type": kind, "sequence": event.sequence, **msgspec.to_builtins(event.place), **fields}


Form = Literal["text", "json", "stream-json"]
ANSWERED = ("output_retries", "refusal", "length")
"""Stops after which there is an answer of the model, but not the one that was asked for."""
LONGEST = 500


class TextPrinter:
    """Prints the text of the model: on a terminal as it arrives, into a file or a pipe once a turn is complete."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._live = sys.stdout.isatty()
        self._output = CleanOutput()
        self._activity = Activity()

    def event(self, event: st.StreamEvent) -> None:
        if not self._output.is_in_line or not isinstance(event, st.ArgumentsStreamed | st.ReasoningStreamed):
            self._activity.event(event)  # within a line of text the spinner would wipe it
        match event:
            case st.TextStreamed(text=text) if self._live:
                self._activity.clear()
                self._output.write(text)
            case st.TurnFinished(message=message):
                if not self._live:
                    self._output.write(message.text)
                self._output.end()
            case st.Retracted(why=why):
                self._output.end()
                what = "Ignore the partial answer above" if self._live else "A partial answer is not printed"
                say(f"evener: {what} ({why})")

    def result(self, result: RunResult) -> None:
        if result.ok and result.output_text.strip() != result.text.strip() and result.output_text:
            print_bytes(result.output_text.encode())  # a structured answer that was not part of the text
        print_losses(result.losses, verbose=self._verbose)

    def close(self) -> None:
        self._activity.clear()
        self._output.end()


class ValuePrinter:
    """Prints the structured answer as JSON, at the end, and no other text of the model."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._activity = Activity()

    def event(self, event: st.StreamEvent) -> None:
        self._activity.event(event)

    def result(self, result: RunResult) -> None:
        if result.ok:
            print_json(result.output)
        elif result.stop in ANSWERED and (last := _find_last_answer(result)):
            say(f"evener: The last answer of the model: {last[:LONGEST]}")
        print_losses(result.losses, verbose=self._verbose)

    def close(self) -> None:
        self._activity.clear()


class JsonPrinter:
    """Prints one object, at the end."""

    def event(self, event: st.StreamEvent) -> None:
        """Print nothing before the end."""

    def result(self, result: RunResult) -> None:
        print_json(result_document(result))

    def close(self) -> None:
        """Do nothing."""


class LinePrinter:
    """Prints each event as a line of JSON; the last one has the result."""

    def event(self, event: st.StreamEvent) -> None:
        print_bytes(msgspec.json.encode(event_document(event)))

    def result(self, result: RunResult) -> None:
        """Print nothing: the last event has the result."""

    def close(self) -> None:
        """Do nothing."""


Printer = TextPrinter | ValuePrinter | JsonPrinter | LinePrinter


def make_printer(form: Form, *, structured: bool, verbose: bool = False) -> Printer:
    """Return the printer for a form. `structured`: in the text form, only the answer is printed, as JSON."""
    if form == "text":
        return ValuePrinter(verbose=verbose) if structured else TextPrinter(verbose=verbose)
    return JsonPrinter() if form == "json" else LinePrinter()


def is_noise(loss: Loss) -> bool:
    """True if the loss does not change what the model is told: a provider's own marks, names, and where they are stored."""
    topic = loss.code.rpartition(".")[0]
    return topic.endswith(".fields") or topic in NOISE


NOISE = frozenset(
    {"tool_result.error", "tool_call.id", "tool_call.name", "message.id", "cache.key", "cache.mark", "reasoning.signature"}
)


def print_losses(losses: Iterable[Loss], *, verbose: bool) -> None:
    """Print losses on stderr; those that are noise only if they are wanted."""
    for loss in losses:
        if verbose or not is_noise(loss):
            say(f"loss: {loss}")


def _find_last_answer(result: RunResult) -> str:
    """Return the last answer of the model: its text, or the arguments of the call that held it."""
    last = next((one for one in reversed(result.transcript.messages) if one.role == "assistant"), None)
    if last is None:
        return ""
    return last.text or "\n".join(call.raw for call in last.calls if call.name == FINAL_RESULT)
