"""A model: `stream(ask)` for the pieces of an answer, `complete(ask)` for the whole answer."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

import msgspec
from msgspec.structs import replace

from evener.context.gate import RoomFacts
from evener.context.provider_side import compacting_codec
from evener.errors import StateExpired
from evener.model.bound import most_prompt, writes_for_an_hour
from evener.model.endpoint import Endpoint
from evener.model.seam import Answered
from evener.model.stream import Answer, Stream
from evener.observe.cost import price
from evener.transcript.ask import (
    Ask,
    Cache,
    Choice,
    Extra,
    HostedTool,
    ModelSettings,
    OutputSchema,
    Reasoning,
    Settings,
    State,
    ToolSpec,
)
from evener.transcript.blocks import Origin
from evener.transcript.completer import Completer
from evener.transcript.loss import loss_of
from evener.transcript.reply import Reply, Usage
from evener.transcript.transcript import Transcript
from evener.translate import retarget

ANY = Choice()
REPLAYED = State()
UNSTATED_OUTPUT = 32_768
"""Tokens: the assumed limit of an answer, where neither the ask nor the model's row states one."""
MILLION = 1_000_000
LEAST_ANSWER = 256
"""Tokens: a model is not asked for a shorter answer."""


class AskDefaults(msgspec.Struct, frozen=True):
    """The values of an ask that its caller does not give."""

    settings: Settings = Settings()
    reasoning: Reasoning = Reasoning()
    cache: Cache = Cache("moving")
    refuse_losses: frozenset[str] = frozenset()
    more: ModelSettings | None = None  # what the values above do not hold: choice, extra fields, foreign reasoning


class Model:
    """One model at one provider. Stateless: any number of calls may run at once."""

    __slots__ = ("_defaults", "_endpoint", "_name", "_origin", "_room")

    def __init__(self, endpoint: Endpoint, *, defaults: AskDefaults | None = None, account: str = "") -> None:
        self._endpoint = endpoint
        self._defaults = defaults or AskDefaults()
        facts = endpoint.facts
        self._name = f"{facts.provider.name}:{facts.model}"
        said = facts.quirks
        self._room = RoomFacts(
            facts.window, said.default_output, said.max_output, said.prefix_bound, said.counts_reasoning, said.cuts_prompts,
            bool(said.context_edits),
        )  # fmt: skip
        self._origin = Origin(
            wire=facts.provider.wire,
            provider=facts.provider.vendor or facts.provider.name,
            endpoint=endpoint.url,
            model=facts.model,
            account=account,
        )

    @property
    def name(self) -> str:
        """Return the model string: `provider:model`."""
        return self._name

    @property
    def endpoint(self) -> Endpoint:
        """Return its address, credentials, transport and row."""
        return self._endpoint

    @property
    def origin(self) -> Origin:
        """Return the origin of its answers, which is also the target of asks to it."""
        return self._origin

    @property
    def room(self) -> RoomFacts:
        """Return what its row says of its window."""
        return self._room

    @property
    def fetches(self) -> bool:
        """True if it takes media only as bytes, not as URLs."""
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
        """Return an ask to this model; defaults stand for what is not given."""
        defaults = self._defaults
        if (more := defaults.more) is not None:
            choice = choice or (more.choice(ANY) if tools else None)
            extra = (*more.extras(self._origin.wire), *extra)
        return Ask(
            transcript,
            self._origin,
            tuple(tools),
            choice or ANY,
            settings or defaults.settings,
            reasoning or defaults.reasoning,
            output,
            cache or (defaults.cache if more is None else more.cache(defaults.cache)),
            state or REPLAYED,
            True,
            extra,
            "text" if more is not None and more.foreign_reasoning == "text" else "drop",
            defaults.refuse_losses,
        )

    def most_cost(self, ask: Ask) -> Decimal:
        """Return the upper bound of a call's cost: every input token at the highest rate, and as much output as is allowed.

        0: no price is known.
        """
        return self._price(ask, self._most_prompt(ask), self._most_output(ask))

    def capped(self, ask: Ask, money: Decimal) -> Ask | None:
        """Return the ask with an output limit so low that the call costs at most `money`; None if no room for an answer is
        left.
        """
        prompt, most = self._most_prompt(ask), self._most_output(ask)
        fixed = self._price(ask, prompt, 0)
        left, each = money - fixed, (self._price(ask, prompt, MILLION) - fixed) / MILLION
        most = min(most, int(left / each)) if each else most
        if left < 0 or most < LEAST_ANSWER:
            return None
        return replace(ask, settings=replace(ask.settings, max_output_tokens=most))

    def _most_output(self, ask: Ask) -> int:
        return ask.settings.max_output_tokens or self._endpoint.facts.quirks.max_output or UNSTATED_OUTPUT

    def _most_prompt(self, ask: Ask) -> int:
        return most_prompt(ask, self._endpoint.facts.window)

    def _price(self, ask: Ask, prompt: int, output: int) -> Decimal:
        """Return the price of so much input, all uncached or all written to the cache, whichever costs more, and output."""
        facts, hour = self._endpoint.facts, writes_for_an_hour(ask)
        usages = (Usage(prompt, prompt, 0, 0, output), Usage(prompt, 0, 0, prompt, output))
        name, model, url = facts.provider.name, facts.model, self._endpoint.url
        return max(price(usage, provider=name, model=model, url=url, hour_writes=hour).amount for usage in usages)

    def stream(self, ask: Ask, *, after: Answered | None = None, keep_raw: bool = False) -> Stream:
        """Return the call, not yet begun: it is sent with the first read. An ask for another model is retargeted.

        `after` is the last answer in the same conversation: it only saves work.
        """
        if ask.target is not self._origin:
            ask = retarget(ask, self._origin)
        keep_raw = keep_raw or (self._defaults.more is not None and bool(self._defaults.more.keep_raw))
        return Stream(self._endpoint, ask, after.sent if after and isinstance(after, Answer) else None, keep_raw)

    async def complete(self, ask: Ask, *, after: Answered | None = None, keep_raw: bool = False) -> Answer:
        """Return the whole answer. If the provider has lost the state that the ask rests on, retry once with everything."""
        try:
            return await self.stream(ask, after=after, keep_raw=keep_raw).complete()
        except StateExpired as error:
            if not ask.state.after:
                raise
            lost = error
        ask = replace(ask, state=replace(ask.state, id="", after=""), target=self._origin)
        why = f"{lost.message}; the whole conversation is sent"
        loss = loss_of("degraded", "state.mode", why, name=ask.state.mode)
        return await Stream(self._endpoint, ask, keep_raw=keep_raw, noted=(loss,)).complete()

    def compacting(self, focus: str = "") -> "Model | None":
        """Return this model as one whose answers are compactions of what it is sent; None where its provider has none.

        `focus` is what to look at above all: None, too, where the provider cannot be told.
        """
        codec = compacting_codec(self._endpoint.codec, self._endpoint.facts.quirks, focus)
        if codec is None:
            return None
        endpoint = replace(self._endpoint, codec=codec, encoding="native")
        return Model(endpoint, defaults=self._defaults, account=self._origin.account)

    @property
    def completer(self) -> Completer:
        """Return the model as a plain `complete(transcript, tools)`, with its defaults."""
        return _Plain(self)

    def __repr__(self) -> str:
        return f"<Model {self.name}>"


class _Plain:
    """A model behind the `Completer` interface."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, transcript: Transcript, tools: Sequence[ToolSpec] = ()) -> Reply:
        return (await self._model.complete(self._model.ask(transcript, tools))).reply
