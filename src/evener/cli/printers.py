"""How a run is printed: words as they come, a structured answer, one object, or a line for each event. Decides nothing."""

import sys
from collections.abc import Callable
from typing import Literal

import msgspec

from evener import streaming as st
from evener.cli.activity import Activity
from evener.cli.terminal import Cleaner, escape_json, say
from evener.encodings.forms import FINAL_RESULT
from evener.result import RunResult

__all__ = [
    "Form",
    "Printer",
    "TextPrinter",
    "event_document",
    "printer",
    "result_document",
]


def result_document(result: RunResult) -> dict[str, object]:
    """What a run came to."""
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
    """One event, tagged by `type`."""
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
"""Stops after which the model had answered, but not with what was asked for."""
LONGEST = 500


class TextPrinter:
    """The model's words. A terminal gets them as they come; a file or a pipe gets a turn when it counts."""

    def __init__(self) -> None:
        self._cleaner = Cleaner()
        self._live = sys.stdout.isatty()
        self._last = "\n"
        self._activity = Activity()

    def event(self, event: st.StreamEvent) -> None:
        self._activity.event(event)
        match event:
            case st.TextStreamed(text=text) if self._live:
                self._activity.clear()
                self._write(self._cleaner.feed(text))
            case st.TurnFinished(message=message):
                self._write(self._cleaner.close() if self._live else self._cleaner.feed(message.text) + self._cleaner.close())
                self._end_line()
            case st.Retracted(why=why, wished=wished):
                self._write(self._cleaner.close())
                self._end_line()
                say(f"evener: What was just shown does not count ({why}){'' if wished else ' Asking again.'}")
            case _:
                pass

    def result(self, result: RunResult) -> None:
        if result.ok and result.output_text.strip() != result.text.strip() and result.output_text:
            _print(result.output_text.encode())  # a structured answer that came by another way than words
        for loss in result.losses:
            say(f"loss: {loss}")

    def close(self) -> None:
        self._activity.clear()
        self._end_line()

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._last = text[-1]

    def _end_line(self) -> None:
        if self._last != "\n":
            self._write("\n")


class ValuePrinter:
    """The structured answer as JSON, at the end. What the model says on the way to it is not part of it."""

    def __init__(self) -> None:
        self._activity = Activity()

    def event(self, event: st.StreamEvent) -> None:
        self._activity.event(event)

    def result(self, result: RunResult) -> None:
        if result.ok:
            _print(msgspec.json.format(msgspec.json.encode(result.output), indent=2))
        elif result.stop in ANSWERED and (last := _said_last(result)):
            say(f"evener: What the model said last: {last[:LONGEST]}")
        for loss in result.losses:
            say(f"loss: {loss}")

    def close(self) -> None:
        self._activity.clear()


class JsonPrinter:
    """One object, at the end."""

    def event(self, event: st.StreamEvent) -> None:
        """Nothing is shown before the end."""

    def result(self, result: RunResult) -> None:
        _print(msgspec.json.format(msgspec.json.encode(result_document(result)), indent=2))

    def close(self) -> None:
        """Nothing is open."""


class Lines:
    """Each event as a line of JSON; the last one has the result."""

    def event(self, event: st.StreamEvent) -> None:
        _print(msgspec.json.encode(event_document(event)))

    def result(self, result: RunResult) -> None:
        """The last event had it."""

    def close(self) -> None:
        """Nothing is open."""


Printer = TextPrinter | ValuePrinter | JsonPrinter | Lines
PRINTERS: dict[Form, Callable[[], Printer]] = {"text": TextPrinter, "json": JsonPrinter, "stream-json": Lines}


def printer(form: Form, *, structured: bool) -> Printer:
    """The one for this form; `structured`: of a text only the answer counts, as JSON."""
    return ValuePrinter() if structured and form == "text" else PRINTERS[form]()


def _print(document: bytes) -> None:
    sys.stdout.buffer.write(escape_json(document) + b"\n")
    sys.stdout.buffer.flush()


def _said_last(result: RunResult) -> str:
    """The model's last answer, in words or as the call that stood for them."""
    last = next((one for one in reversed(result.transcript.messages) if one.role == "assistant"), None)
    if last is None:
        return ""
    return last.text or "\n".join(call.raw for call in last.calls if call.name == FINAL_RESULT)
