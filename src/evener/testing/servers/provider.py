"""A fake provider without its socket: takes a request, returns an answer. Keeps the position in the script and all requests;
no I/O.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from evener.errors import UsageError
from evener.testing.servers import faults, status
from evener.testing.servers.answer import HttpAnswer, sliced
from evener.testing.servers.anthropic import AnthropicWire
from evener.testing.servers.chat import ChatWire
from evener.testing.servers.gemini import GeminiWire
from evener.testing.servers.responses import ResponsesWire
from evener.testing.servers.status import Instead, Status
from evener.testing.servers.turn import Call, Native, Part, Refusal, Text, Thinking, Turn
from evener.testing.servers.wire import Mint, Received, Refused, Rejected, RequestRoute, ServerSettings, Wire

Entry = Turn | Part | str | faults.Fault | status.Instead
"""A turn; a part or text that is all of one; a fault that strikes a short one; or what is answered instead of one."""

Rule = tuple[Callable[[Received], bool], Entry]
"""A question about a request, and the answer for all of which it is true."""

Script = Sequence[Entry | Rule] | Callable[[Received], Entry | None]

_FILLER = Text("This is an answer of the fake server, made to show a fault.", pieces=6)


class Scripted:
    """A script and the position in it."""

    def __init__(self, script: Script) -> None:
        if isinstance(script, str | bytes):
            raise UsageError("A script is a list of entries, rules, or a function. Put the text into a list.")
        self._chooser: Callable[[Received], Entry | None] = script if callable(script) else self._next
        self._entries: list[Entry | Rule] = [] if callable(script) else list(script)
        self._played = 0
        for entry in self._entries:
            _read(entry[-1] if isinstance(entry, tuple) and entry else entry)
        if any(isinstance(entry, tuple) for entry in self._entries):
            self._chooser = self._match
            if not all(isinstance(entry, tuple) for entry in self._entries):
                raise UsageError("A script holds entries or rules, not both. Make a rule of each entry, or of none.")

    @property
    def left(self) -> int:
        """The number of entries that were not used yet. Rules and functions never count as used."""
        return len(self._entries) - self._played

    def add(self, *entries: Entry) -> None:
        """Add entries at the end."""
        for entry in entries:
            _read(entry)
        self._entries += entries

    def choose(self, received: Received) -> Turn | status.Instead | None:
        """Return the answer to this request; None when the script has none."""
        entry = self._chooser(received)
        return None if entry is None else _read(entry)

    def _next(self, _received: Received) -> Entry | None:
        if self._played >= len(self._entries):
            return None
        entry = self._entries[self._played]
        self._played += 1
        return None if isinstance(entry, tuple) else entry

    def _match(self, received: Received) -> Entry | None:
        rules = (entry for entry in self._entries if isinstance(entry, tuple))
        return next((entry for matches, entry in rules if matches(received)), None)


def _read(entry: object) -> Turn | status.Instead:
    match entry:
        case Turn() | status.Status() | status.Html() | status.Empty() | status.Redirect() | status.Raw():
            return entry
        case str():
            return Turn(parts=(Text(entry),))
        case Text() | Thinking() | Call() | Refusal() | Native():
            return Turn(parts=(entry,))
        case _ if isinstance(entry, faults.Fault):
            return Turn(parts=(_FILLER,), faults=(entry,))
        case _:
            raise UsageError(
                f"{entry!r:.80} is no entry of a script. Write a text, a turn or a part of one, a fault, or a Status."
            )


WIRES: Mapping[str, Callable[[ServerSettings], Wire]] = {
    "anthropic_messages": AnthropicWire,
    "openai_responses": ResponsesWire,
    "openai_chat": ChatWire,
    "gemini": GeminiWire,
}
# The vendors' SDKs would try a 500 again; there is no point in that when the script is at its end.
_FINAL = {"x-should-retry": "false"}


class FakeProvider:
    """Answers requests: the key first, then what needs no script, then the rules, then the script."""

    def __init__(self, wire: str, settings: ServerSettings, script: Scripted) -> None:
        self.requests: list[Received] = []
        self.rejected: list[Rejected] = []
        self.script = script
        self.wire = WIRES[wire](settings)
        self._mint = Mint(settings.seed and f"{settings.seed}:requests")

    def respond(self, received: Received) -> HttpAnswer:
        """Return the answer to one request."""
        self.requests.append(received)
        return self._stamp(self._answer(received))

    def _stamp(self, answer: HttpAnswer) -> HttpAnswer:
        """Return the answer with the request's id in its head, also a refusal; but not the page of a proxy."""
        headers = dict(answer.headers)
        if not self.wire.stamp or self.wire.stamp in headers or headers.get("content-type", "").startswith("text/html"):
            return answer
        return replace(answer, headers=(*answer.headers, (self.wire.stamp, self._mint.id("req_"))))

    def _answer(self, received: Received) -> HttpAnswer:
        refused = self.wire.unlock(received)
        if refused is not None:
            return refused.answer
        served = self.wire.serve(received)
        if served is not None:
            return served
        route = self.wire.route(received)
        if route is None:
            return self._instead(Status(404, f"There is no {received.method} {received.route} here."))
        refused = self.wire.judge(received, route)
        if refused is not None:
            return self._reject(received, refused)
        return self._play(received, route)

    def _reject(self, received: Received, refused: Refused) -> HttpAnswer:
        if refused.violations:
            self.rejected.append(Rejected(received, refused.violations))
        return refused.answer

    def _play(self, received: Received, route: RequestRoute) -> HttpAnswer:
        try:
            entry = self.script.choose(received)
        except Exception as error:  # a user's function may raise whatever it likes, and the client should hear of it
            entry = Status(500, f"The script's function raised {type(error).__name__}: {error}", headers=_FINAL)
        match entry:
            case None:
                return self._instead(Status(500, self._describe_exhausted(), headers=_FINAL), streamed=route.streamed)
            case Turn():
                return self._spoil(self.wire.say(received, route, entry), entry, route)
            case _:
                return self._instead(entry, streamed=route.streamed)

    def _spoil(self, answer: HttpAnswer, turn: Turn, route: RequestRoute) -> HttpAnswer:
        voice = self.wire.voice(streamed=route.streamed)
        if turn.faults and not route.streamed:
            answer = sliced(answer)
        for fault in turn.faults:
            answer = fault.spoil(answer, voice)
        return answer

    def _instead(self, entry: Instead, *, streamed: bool = False) -> HttpAnswer:
        return entry.answer(self.wire.voice(streamed=streamed))

    def _describe_exhausted(self) -> str:
        return (
            f"The script of the fake server is exhausted: it has no answer to request number {len(self.requests)}. "
            "Add an entry, or find out why there was one more request."
        )
