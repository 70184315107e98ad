"""The fake of the Responses API: routes, and the memory of stored answers, conversations and encrypted reasoning.

Written from the wire sheet (sections 1 and 7) and the recordings, never from an encoder.
"""

from collections.abc import Iterator, Mapping, Sequence

from evener.testing.check import Violation, check_request
from evener.testing.check.shape import fields, items, text
from evener.testing.servers.answer import Answer, streamed, whole
from evener.testing.servers.mint import Mint
from evener.testing.servers.openai_errors import error_body, refused, serve_models, unlock
from evener.testing.servers.received import Received, Route
from evener.testing.servers.responses_speech import ResponsesVoice, events, items_of, response
from evener.testing.servers.turn import Turn
from evener.testing.servers.wire import Refused, Settings

__all__ = ["ResponsesWire"]

Json = dict[str, object]


class _Missing(Exception):
    """Something is referred to that is not stored."""

    def __init__(self, status: int, said: str, *, param: str, code: str | None = None) -> None:
        super().__init__(said)
        self.refused = Refused(
            whole(status, error_body(status, said, param=param, code=code)), (Violation(param, "state.missing", said),)
        )


class ResponsesWire:
    """See `Wire`."""

    base = "/v1"
    stamp = "x-request-id"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._mint = Mint(settings.seed)
        self._issued = dict(settings.issued)
        self._bound: dict[str, str] = {}  # which reasoning each item was made with
        self._replies: dict[str, Json] = {}
        self._chains: dict[str, list[object]] = {}
        self._conversations: dict[str, list[object]] = {}
        self._items: dict[str, Json] = {}

    def voice(self, *, streamed: bool) -> ResponsesVoice:
        return ResponsesVoice(streamed)

    def unlock(self, received: Received) -> Refused | None:
        return unlock(received, self._settings)

    def held(self, name: str) -> list[object] | None:
        """The items up to an answer, or in a conversation; None when they are not stored."""
        found = self._chains.get(name, self._conversations.get(name))
        return None if found is None else list(found)

    def forget(self) -> None:
        """Lose all that is stored. What was encrypted for the client can still be read."""
        self._replies, self._chains, self._conversations, self._items = {}, {}, {}, {}

    def serve(self, received: Received) -> Answer | None:
        if received.method == "POST" and received.route == "/v1/conversations":
            name = self._mint.id("conv_", 48)
            self._conversations[name] = items(received.json.get("items"))
            return whole(200, {"id": name, "object": "conversation", "created_at": 1767225600, "metadata": {}})
        name = received.route.removeprefix("/v1/responses/")
        if received.method == "GET" and name in self._replies:
            return whole(200, self._replies[name])
        return serve_models(received, self._settings)

    def route(self, received: Received) -> Route | None:
        if received.method != "POST" or received.route != "/v1/responses":
            return None
        body = received.json
        return Route(text(body.get("model")), body.get("stream") is True)

    def judge(self, received: Received, route: Route) -> Refused | None:
        found = check_request("openai_responses", received.body, issued=self._issued, bound=self._bound)
        if found:
            return refused(found)
        if self._settings.models and route.model not in self._settings.models:
            said = f"The requested model '{route.model}' does not exist."
            return Refused(whole(400, error_body(400, said, param="model", code="model_not_found")))
        try:
            whole_body = self._unfolded(received.json)
        except _Missing as missing:
            return missing.refused
        found = check_request("openai_responses", whole_body, issued=self._issued, bound=self._bound)
        return refused(found) if found else None

    def say(self, received: Received, route: Route, turn: Turn) -> Answer:
        body = received.json
        output, name = items_of(turn, self._mint), self._mint.id("resp_", 48)
        reply = response(turn, output, body, name=name, tokens=turn.tokens(received.body))
        conversation = _conversation(body)
        if conversation:
            reply["conversation"] = {"id": conversation}
        if self._settings.retention:
            self._remember(body, reply, output)
        else:
            reply["store"] = False
            self._issue(output)
        if turn.forgets:
            self.forget()
        headers = (("x-request-id", self._mint.id("req_")),)
        if not route.streamed:
            return whole(200, reply, headers)
        return streamed(events(turn, reply, output), ending=1, headers=headers)

    def _issue(self, output: Sequence[Json]) -> None:
        reasoning = ""
        for item in output:
            if item.get("type") == "reasoning":
                self._issued[text(item.get("encrypted_content"))] = ""
                reasoning = text(item.get("id"))
            elif reasoning:
                self._bound[text(item.get("id"))] = reasoning

    def _remember(self, body: Mapping[str, object], reply: Json, output: Sequence[Json]) -> None:
        self._issue(output)
        conversation = _conversation(body)
        if body.get("store") is False and not conversation:
            return
        taken = [*items(self._unfolded(body).get("input")), *output]
        if conversation:
            self._conversations[conversation] = taken
        if body.get("store") is not False:
            self._replies[text(reply["id"])] = reply
            self._chains[text(reply["id"])] = taken
            self._items |= {text(item.get("id")): item for item in output}

    def _unfolded(self, body: Mapping[str, object]) -> Json:
        """The request with what lies on the server put into its input, as a stateless one would have it."""
        given = body.get("input")
        said: list[object] = [{"role": "user", "content": given}] if isinstance(given, str) else items(given)
        told = {name: value for name, value in body.items() if name not in ("previous_response_id", "conversation")}
        return {**told, "input": [*self._history(body), *self._resolved(said)]}

    def _history(self, body: Mapping[str, object]) -> list[object]:
        previous, conversation = text(body.get("previous_response_id")), _conversation(body)
        if (previous or conversation) and not self._settings.retention:
            what, param = ("Previous response", "previous_response_id") if previous else ("Conversation ID", "conversation")
            said = f"{what} cannot be used for this organization due to Zero Data Retention."
            raise _Missing(400, said, param=param, code="unsupported_parameter")
        if previous and previous not in self._chains:
            said = f"Previous response with id '{previous}' not found."
            raise _Missing(400, said, param="previous_response_id", code="previous_response_not_found")
        if conversation and conversation not in self._conversations:
            raise _Missing(404, f"Conversation with id '{conversation}' not found.", param="conversation")
        return self._chains.get(previous, []) + self._conversations.get(conversation, [])

    def _resolved(self, said: Sequence[object]) -> Iterator[object]:
        for value in said:
            item = fields(value)
            if item.get("type") != "item_reference":
                yield value
                continue
            name = text(item.get("id"))
            if name not in self._items:
                raise _Missing(404, f"Item with id '{name}' not found.", param="input")
            yield self._items[name]


def _conversation(body: Mapping[str, object]) -> str:
    given = body.get("conversation")
    return given if isinstance(given, str) else text(fields(given).get("id"))
