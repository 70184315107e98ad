"""A model that can be asked: `stream(ask)` for the pieces, `complete(ask)` for the whole, which folds the stream."""

from collections.abc import Iterable, Sequence

import msgspec

from evener.model.answer import Answer
from evener.model.endpoint import Endpoint
from evener.model.seam import Answered
from evener.model.stream import Stream
from evener.transcript.ask import (
    Ask,
    Cache,
    Choice,
    Extra,
    HostedTool,
    OutputSchema,
    Reasoning,
    Settings,
    State,
    ToolSpec,
)
from evener.transcript.completer import Completer
from evener.transcript.origin import Origin
from evener.transcript.reply import Reply
from evener.transcript.transcript import Transcript
from evener.translate import retarget

__all__ = ["Defaults", "Model"]


class Defaults(msgspec.Struct, frozen=True):
    """What an ask gets where it says nothing itself."""

    settings: Settings = Settings()
    reasoning: Reasoning = Reasoning()
    cache: Cache = Cache("moving")


class Model:
    """One model at one provider. Free of state: any number of calls may run at once."""

    __slots__ = ("_defaults", "_endpoint", "_origin")

    def __init__(self, endpoint: Endpoint, *, defaults: Defaults | None = None, account: str = "") -> None:
        self._endpoint = endpoint
        self._defaults = defaults or Defaults()
        facts = endpoint.facts
        self._origin = Origin(
            wire=facts.provider.wire,
            provider=facts.provider.vendor or facts.provider.name,
            endpoint=endpoint.url,
            model=facts.model,
            account=account,
        )

    @property
    def name(self) -> str:
        """As in a model string: `provider:model`."""
        return f"{self._endpoint.facts.provider.name}:{self._endpoint.facts.model}"

    @property
    def endpoint(self) -> Endpoint:
        """Whom it talks to, and how."""
        return self._endpoint

    @property
    def origin(self) -> Origin:
        """Who an ask to this model is for, and who made its answers."""
        return self._origin

    @property
    def fetches(self) -> bool:
        """Whether media behind a URL must be given to it as bytes."""
        return not self._endpoint.facts.quirks.image_urls

    def ask(
        self,
        transcript: Transcript,
        tools: Iterable[ToolSpec | HostedTool] = (),
        *,
        choice: Choice | None = None,
        settings: Settings | None = None,
        reasoning: Reasoning | None = None,
        output: OutputSchema | None = None,
        cache: Cache | None = None,
        state: State | None = None,
        extra: tuple[Extra, ...] = (),
    ) -> Ask:
        """An ask to this model; what is not given is the model's default."""
        defaults = self._defaults
        return Ask(
            transcript,
            self._origin,
            tuple(tools),
            choice or Choice(),
            settings or defaults.settings,
            reasoning or defaults.reasoning,
            output,
            cache or defaults.cache,
            state or State(),
            True,
            extra,
        )

    def stream(self, ask: Ask, *, after: Answered | None = None, keep_raw: bool = False) -> Stream:
        """The call, not yet begun: it is sent with the first read. An ask for another model is turned to this one.

        `after` is the last answer in the same conversation: it only makes this call cheaper.
        """
        if ask.target is not self._origin:
            ask = retarget(ask, self._origin)
        return Stream(self._endpoint, ask, prior=after.sent if isinstance(after, Answer) else None, keep_raw=keep_raw)

    async def complete(self, ask: Ask, *, after: Answered | None = None, keep_raw: bool = False) -> Answer:
        """The whole answer."""
        async with self.stream(ask, after=after, keep_raw=keep_raw) as stream:
            while await stream.read():
                pass
            return stream.answer

    @property
    def completer(self) -> Completer:
        """The model as a plain `complete(transcript, tools)`, with its defaults."""
        return _Plain(self)

    def __repr__(self) -> str:
        return f"<Model {self.name}>"


class _Plain:
    """A model behind the smallest interface there is."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, transcript: Transcript, tools: Sequence[ToolSpec] = ()) -> Reply:
        return (await self._model.complete(self._model.ask(transcript, tools))).reply
