"""A fake provider without its socket: a request in, an answer out. Keeps the script's place and what came; does no I/O."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from evener.testing.servers.answer import Answer, sliced
from evener.testing.servers.anthropic import AnthropicWire
from evener.testing.servers.chat import ChatWire
from evener.testing.servers.gemini import GeminiWire
from evener.testing.servers.mint import Mint
from evener.testing.servers.received import Received, Rejected, Route
from evener.testing.servers.responses import ResponsesWire
from evener.testing.servers.script import Scripted
from evener.testing.servers.status import Instead, Status
from evener.testing.servers.turn import Turn
from evener.testing.servers.wire import Refused, Settings, Wire

__all__ = ["WIRES", "Provider"]

WIRES: Mapping[str, Callable[[Settings], Wire]] = {
    "anthropic_messages": AnthropicWire,
    "openai_responses": ResponsesWire,
    "openai_chat": ChatWire,
    "gemini": GeminiWire,
}
# The vendors' SDKs would try a 500 again; there is no point in that when the script is at its end.
_FINAL = {"x-should-retry": "false"}


class Provider:
    """Answers requests: the key first, then what needs no script, then the rules, then the script."""

    def __init__(self, wire: str, settings: Settings, script: Scripted) -> None:
        self.requests: list[Received] = []
        self.rejected: list[Rejected] = []
        self.script = script
        self.wire = WIRES[wire](settings)
        self._mint = Mint(settings.seed and f"{settings.seed}:requests")

    def respond(self, received: Received) -> Answer:
        """The answer to one request."""
        self.requests.append(received)
        return self._stamped(self._answer(received))

    def _stamped(self, answer: Answer) -> Answer:
        """With the id of the request in its head, refusals included; only a proxy's page has none."""
        headers = dict(answer.headers)
        if not self.wire.stamp or self.wire.stamp in headers or headers.get("content-type", "").startswith("text/html"):
            return answer
        return replace(answer, headers=(*answer.headers, (self.wire.stamp, self._mint.id("req_"))))

    def _answer(self, received: Received) -> Answer:
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

    def _reject(self, received: Received, refused: Refused) -> Answer:
        if refused.violations:
            self.rejected.append(Rejected(received, refused.violations))
        return refused.answer

    def _play(self, received: Received, route: Route) -> Answer:
        try:
            entry = self.script.choose(received)
        except Exception as error:  # a user's function may raise whatever it likes, and the client should hear of it
            entry = Status(500, f"The script's function raised {type(error).__name__}: {error}", headers=_FINAL)
        match entry:
            case None:
                return self._instead(Status(500, self._exhausted(), headers=_FINAL), streamed=route.streamed)
            case Turn():
                return self._spoil(self.wire.say(received, route, entry), entry, route)
            case _:
                return self._instead(entry, streamed=route.streamed)

    def _spoil(self, answer: Answer, turn: Turn, route: Route) -> Answer:
        voice = self.wire.voice(streamed=route.streamed)
        if turn.faults and not route.streamed:
            answer = sliced(answer)
        for fault in turn.faults:
            answer = fault.spoil(answer, voice)
        return answer

    def _instead(self, entry: Instead, *, streamed: bool = False) -> Answer:
        return entry.answer(self.wire.voice(streamed=streamed))

    def _exhausted(self) -> str:
        return (
            f"The script of the fake server is exhausted: it has no answer to request number {len(self.requests)}. "
            "Add an entry, or find out why there was one more request."
        )
