"""The fake of Chat Completions, as OpenAI or as one of its imitators serves it. Keeps nothing between requests.

Written from the wire sheet (sections 1, 6 and 9) and the recordings, never from an encoder.
"""

from evener.testing.check import check_request
from evener.testing.check.shape import fields, text
from evener.testing.servers.answer import Answer, streamed, whole
from evener.testing.servers.chat_speech import ChatVoice, Reply, chunks, completion
from evener.testing.servers.chat_styles import style
from evener.testing.servers.mint import Mint
from evener.testing.servers.openai_errors import error_body, refused, serve_models, unlock
from evener.testing.servers.received import Received, Route
from evener.testing.servers.turn import Turn
from evener.testing.servers.wire import Refused, Settings

__all__ = ["ChatWire"]


class ChatWire:
    """See `Wire`."""

    base = "/v1"
    stamp = "x-request-id"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._style = style(settings.dialect)
        self._mint = Mint(settings.seed)

    def voice(self, *, streamed: bool) -> ChatVoice:
        return ChatVoice(streamed, self._style)

    def unlock(self, received: Received) -> Refused | None:
        return unlock(received, self._settings)

    def serve(self, received: Received) -> Answer | None:
        return serve_models(received, self._settings)

    def route(self, received: Received) -> Route | None:
        if received.method != "POST" or received.route != "/v1/chat/completions":
            return None
        body = received.json
        return Route(text(body.get("model")), body.get("stream") is True)

    def judge(self, received: Received, route: Route) -> Refused | None:
        found = check_request("openai_chat", received.body, dialect=self._settings.dialect)
        if found:
            return refused(found)
        if self._settings.models and route.model not in self._settings.models:
            said = f"The model `{route.model}` does not exist or you do not have access to it."
            return Refused(whole(404, error_body(404, said, code="model_not_found")))
        return None

    def say(self, received: Received, route: Route, turn: Turn) -> Answer:
        reply = Reply(
            turn=turn,
            name=self._mint.id("chatcmpl-"),
            model=route.model,
            tokens=turn.tokens(received.body),
            calls=[call.id or self._call_id() for call in turn.calls],
            style=self._style,
            asked=fields(received.json.get("stream_options")).get("include_usage") is True,
        )
        headers = (("x-request-id", self._mint.id("req_")),)
        if not route.streamed:
            return whole(200, completion(reply), headers)
        said, ending = chunks(reply)
        return streamed(said, ending=ending, headers=headers)

    def _call_id(self) -> str:
        return self._mint.id("", 9) if self._style.alphanumeric else self._mint.id("call_")
