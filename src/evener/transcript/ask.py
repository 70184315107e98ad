"""The input of one model call in neutral terms, and the settings of a model as one value. Pure.

Codecs turn an ask into bytes; they decide nothing. `ModelSettings` belong to a harness, a model, an agent or a single run.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec
from msgspec.structs import force_setattr, replace

from evener.errors import BadDocument, BadValue
from evener.transcript.blocks import (
    TTLS,
    CacheTtl,
    Origin,
    as_tuple,
    check_choice,
    check_number,
    check_object,
    check_text,
    check_texts,
    check_type,
    json_object,
    json_text,
)
from evener.transcript.loss import refused_codes
from evener.transcript.transcript import Transcript

Effort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How hard to think, on one scale; each wire has its own words for it."""


ChoiceMode = Literal["auto", "required", "none", "named"]
ReasoningMode = Literal["auto", "default", "on", "off", "between_tools"]
ReasoningShow = Literal["", "summary", "concise", "detailed", "omitted"]
CacheMode = Literal["off", "marks", "moving", "provider"]
StateMode = Literal["replay", "chain", "conversation"]
OutputForm = Literal["", "native", "tool", "prompted"]

EFFORTS: tuple[str, ...] = get_args(Effort)
CHOICE_MODES: tuple[str, ...] = get_args(ChoiceMode)
REASONING_MODES: tuple[str, ...] = get_args(ReasoningMode)
SHOWS: tuple[str, ...] = get_args(ReasoningShow)
CACHE_MODES: tuple[str, ...] = get_args(CacheMode)
STATE_MODES: tuple[str, ...] = get_args(StateMode)
OUTPUT_FORMS: tuple[str, ...] = get_args(OutputForm)


FREE_INPUT = "input"
FREE_SCHEMA = '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}'
"""The arguments of a tool that takes free text: one string."""


class FreeText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The input of a tool that takes a text instead of arguments: any text, or one that fits a grammar.

    `syntax` is the notation of `grammar` (`lark`, `regex`); both are empty for any text.
    """

    syntax: str = ""
    grammar: str = ""

    def __post_init__(self) -> None:
        check_texts(self, "syntax", "grammar")


class Namespace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named group of tools. The name of a tool in it is qualified: `crm__look_up` for `look_up` in `crm`.

    `extra` is the JSON text of fields that only the wire of its tools knows.
    """

    name: str
    description: str = ""
    extra: str = ""

    def __post_init__(self) -> None:
        check_texts(self, "name", "description")
        if self.extra != "":
            check_object(self.extra, "Namespace.extra")

    @property
    def prefix(self) -> str:
        """What the qualified names of its tools begin with."""
        return self.name if self.name.endswith("__") else f"{self.name}__"


class ToolSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool as it is declared to the model. `schema` is the JSON text of a JSON Schema for the arguments; a mapping is also
    accepted.

    `strict` asks the provider to enforce the schema; None leaves it to the wire. `extra` is the JSON text of fields that
    only the wire named in `wire` knows, and with `provider` only that provider on it. `free` marks a tool that takes a text;
    its schema is `FREE_SCHEMA`, and on a wire without such tools it is a function of one string. `namespace` is its group;
    its name is then qualified. `inline`: the conversation declares it to its own wire; requests to others must declare it.
    `standard` names the standard tool that it is, with that tool's arguments (`read`, `edit`, `shell`, ...): a model that
    was trained on another form of this tool gets that form. `screen` is the size in pixels of the screen that its results
    show; of the standard tools, only `computer` has one.
    """

    name: str
    description: str = ""
    schema: str = '{"type":"object","properties":{}}'
    strict: bool | None = None
    extra: str = ""
    wire: str = ""
    cache: CacheTtl = ""
    provider: str = ""
    free: FreeText | None = None
    namespace: Namespace | None = None
    inline: bool = False
    standard: str = ""
    screen: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_texts(self, "name", "description", "wire", "provider", "standard")
        if self.free is not None:
            check_type(self.free, (FreeText,), "ToolSpec.free")
            force_setattr(self, "schema", FREE_SCHEMA)
        if self.namespace is not None:
            check_type(self.namespace, (Namespace,), "ToolSpec.namespace")
        check_type(self.strict, (bool, type(None)), "ToolSpec.strict")
        check_choice(self.cache, TTLS, "ToolSpec.cache")
        if isinstance(self.schema, Mapping):
            force_setattr(self, "schema", json_text(self.schema, "ToolSpec.schema"))
        check_object(self.schema, "ToolSpec.schema")
        if self.extra != "":
            check_object(self.extra, "ToolSpec.extra")

    @property
    def input_schema(self) -> dict[str, object]:
        """The schema, decoded afresh."""
        return json_object(self.schema, "The schema of tool {!r}", self.name)

    @property
    def bare_name(self) -> str:
        """The name within its namespace."""
        return self.name.removeprefix(self.namespace.prefix) if self.namespace else self.name


class HostedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool that the provider runs: its declaration, verbatim, for one wire, and with `provider` only for that provider.

    `inline`: the conversation declares it. Without a wire it is neutral: `name` says which tool (`web_search`, ...), and
    `raw` has its options; each wire gets its own declaration, and a wire without one refuses the request.
    """

    wire: str
    raw: str
    name: str = ""
    provider: str = ""
    inline: bool = False

    def __post_init__(self) -> None:
        check_texts(self, "wire", "name", "provider")
        check_object(self.raw, "HostedTool.raw")


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The tools that may or must be called. `names` narrows `named` (exactly one) or `auto`/`required` (a subset).

    `parallel` None leaves it to the provider; `stated` writes `auto` out.
    """

    mode: ChoiceMode = "auto"
    names: tuple[str, ...] = ()
    parallel: bool | None = None
    stated: bool = False

    def __post_init__(self) -> None:
        check_choice(self.mode, CHOICE_MODES, "Choice.mode")
        force_setattr(self, "names", as_tuple(self.names, "Choice.names"))
        for name in self.names:
            check_text(name, "Choice.names")
        check_type(self.parallel, (bool, type(None)), "Choice.parallel")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Sampling and limits. None is not sent. A setting that the wire does not have becomes a Loss."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        check_number(self.max_output_tokens, "Settings.max_output_tokens", least=1, whole=True)
        check_number(self.temperature, "Settings.temperature")
        check_number(self.top_p, "Settings.top_p")
        check_number(self.top_k, "Settings.top_k", whole=True)
        check_number(self.seed, "Settings.seed", whole=True)
        force_setattr(self, "stop", as_tuple(self.stop, "Settings.stop"))
        for text in self.stop:
            check_text(text, "Settings.stop")

    @property
    def samples(self) -> bool:
        """True if a setting says how tokens are sampled that some models reject."""
        return self.temperature is not None or self.top_p is not None


class Reasoning(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the model reasons.

    mode `auto` switches reasoning on if `effort` or `budget` is set, and off for a budget of 0; `default` sends the effort
    and leaves the switch at the model's default; `on`, `off` and `between_tools` set it. `show` asks for readable reasoning
    (`summary`, `concise`, `detailed`) or none (`omitted`).
    """

    effort: Effort | None = None
    budget: int | None = None
    mode: ReasoningMode = "auto"
    show: ReasoningShow = ""

    def __post_init__(self) -> None:
        if self.effort is not None:
            check_choice(self.effort, EFFORTS, "Reasoning.effort")
        check_number(self.budget, "Reasoning.budget", least=0, whole=True)
        if self.budget == 0 and self.mode == "auto":
            force_setattr(self, "mode", "off")
        check_choice(self.mode, REASONING_MODES, "Reasoning.mode")
        check_choice(self.show, SHOWS, "Reasoning.show")


class OutputSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The shape of the final answer. An empty `schema` asks for any JSON object.

    `form` is the way to request it: by the provider's own feature, as the arguments of a tool, or in the prompt; empty
    leaves the choice to the model's row.
    """

    schema: str = ""
    name: str = "answer"
    description: str = ""
    strict: bool | None = None
    form: OutputForm = ""

    def __post_init__(self) -> None:
        if isinstance(self.schema, Mapping):
            force_setattr(self, "schema", json_text(self.schema, "OutputSchema.schema"))
        if self.schema != "":
            check_object(self.schema, "OutputSchema.schema")
        check_choice(self.form, OUTPUT_FORMS, "OutputSchema.form")


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Prompt caching. `moving`: Evener places marks after the stable prefix and the newest turns. `marks`: only the marks on
    the blocks. `provider`: the provider places them, if it can. `key` routes equal prefixes to one cache.
    """

    mode: CacheMode = "marks"
    ttl: CacheTtl = ""
    key: str = ""

    def __post_init__(self) -> None:
        check_choice(self.mode, CACHE_MODES, "Cache.mode")
        check_choice(self.ttl, TTLS, "Cache.ttl")
        check_text(self.key, "Cache.key")


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who stores the conversation: `replay` sends it, `chain` names the previous response, `conversation` a stored
    conversation.

    `id` is the provider's name for what it stores; empty: nothing yet. `after` is the last message of the transcript that is
    part of it: only later messages are sent. Without it, every message of the transcript is new to the provider. `store`
    None leaves storing to the provider's default. `sealed` asks for encrypted reasoning, which `replay` needs; None asks for
    it if the provider has it, and True also reports if it has not.
    """

    mode: StateMode = "replay"
    id: str = ""
    store: bool | None = False
    sealed: bool | None = None
    after: str = ""

    def __post_init__(self) -> None:
        check_choice(self.mode, STATE_MODES, "State.mode")
        check_texts(self, "id", "after")
        check_type(self.store, (bool, type(None)), "State.store")
        check_type(self.sealed, (bool, type(None)), "State.sealed")


class Extra(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fields for one wire, passed through: `body` is the JSON text of an object, `headers` are names and values.

    With `provider` they are for that provider only: other providers on the wire may refuse them.
    """

    wire: str
    body: str = "{}"
    headers: tuple[tuple[str, str], ...] = ()
    provider: str = ""

    def __post_init__(self) -> None:
        check_texts(self, "wire", "provider")
        check_object(self.body, "Extra.body")

    def is_for(self, wire: str, provider: str) -> bool:
        """True if a request on this wire to this provider carries them."""
        return self.wire == wire and self.provider in ("", provider)


class Ask(msgspec.Struct, frozen=True, gc=False):
    """One model call. `target` is the model that gets it: seals of other makers are not sent.

    `refuse_losses` names losses that prevent sending: by codes, prefixes of codes, or kinds.
    """

    transcript: Transcript
    target: Origin
    tools: tuple[ToolSpec | HostedTool, ...] = ()
    choice: Choice = Choice()
    settings: Settings = Settings()
    reasoning: Reasoning = Reasoning()
    output: OutputSchema | None = None
    cache: Cache = Cache()
    state: State = State()
    stream: bool = True
    extra: tuple[Extra, ...] = ()
    foreign_reasoning: Literal["drop", "text"] = "drop"
    refuse_losses: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if type(self.transcript) is not Transcript or type(self.target) is not Origin:
            check_type(self.transcript, (Transcript,), "Ask.transcript")
            check_type(self.target, (Origin,), "Ask.target")
        if type(self.tools) is not tuple:
            force_setattr(self, "tools", as_tuple(self.tools, "Ask.tools"))
        for tool in self.tools:
            check_type(tool, (ToolSpec, HostedTool), "Ask.tools")
        if self.refuse_losses:
            force_setattr(self, "refuse_losses", refused_codes(self.refuse_losses))


MODES: dict[str, ChoiceMode] = {"auto": "auto", "required": "required", "none": "none"}
TIER_FIELDS = {
    "anthropic_messages": "service_tier",
    "gemini": "serviceTier",
    "openai_chat": "service_tier",
    "openai_responses": "service_tier",
}
THINKING: dict[bool, ReasoningMode] = {True: "on", False: "off"}


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of a model. A setting that is not given keeps the value of the outer level: run, agent, harness, model.

    `tool_choice` is "auto", "required", "none" or the name of a tool; it applies to every request of a run. `tool_choices`
    apply to its first requests, one each: with `("required",)` the model can answer from the second on. `parallel` allows
    several calls in one answer. `effort`, `thinking` and `thinking_budget` control the amount of reasoning, `show` asks for
    readable reasoning, `foreign_reasoning` decides about the reasoning of other models: "drop", or "text". `stop` are texts
    at which an answer ends. `service_tier` is in the provider's own terms. `cache_ttl` is the lifetime of the provider's
    prompt cache ("5m", "1h", "30m", "12h", as its row has it), `cache_key` routes requests with equal prefixes to one cache.
    `extra` has fields of the body for one wire, passed through; for headers use the `auth` of `open_model`, because a run's
    settings are written to its log. `keep_raw` keeps each answer as its provider sent it, without secrets: in the log, and
    for `RunResult.raw_responses`.
    """

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    effort: Effort | None = None
    thinking: bool | None = None
    thinking_budget: int | None = None
    show: ReasoningShow = ""
    foreign_reasoning: Literal["", "drop", "text"] = ""
    tool_choice: str = ""
    tool_choices: tuple[str, ...] = ()
    parallel: bool | None = None
    service_tier: str = ""
    cache_ttl: CacheTtl = ""
    cache_key: str = ""
    extra: tuple[Extra, ...] = ()
    keep_raw: bool | None = None

    def __post_init__(self) -> None:
        check_number(self.max_output_tokens, "ModelSettings.max_output_tokens", least=1, whole=True)
        check_number(self.temperature, "ModelSettings.temperature")
        check_number(self.top_p, "ModelSettings.top_p")
        check_number(self.top_k, "ModelSettings.top_k", whole=True)
        check_number(self.seed, "ModelSettings.seed", whole=True)
        check_number(self.thinking_budget, "ModelSettings.thinking_budget", least=0, whole=True)
        check_type(self.thinking, (bool, type(None)), "ModelSettings.thinking")
        check_type(self.parallel, (bool, type(None)), "ModelSettings.parallel")
        check_type(self.keep_raw, (bool, type(None)), "ModelSettings.keep_raw")
        if self.effort is not None:
            check_choice(self.effort, EFFORTS, "ModelSettings.effort")
        check_choice(self.show, SHOWS, "ModelSettings.show")
        check_choice(self.foreign_reasoning, ("", "drop", "text"), "ModelSettings.foreign_reasoning")
        check_texts(self, "tool_choice", "service_tier", "cache_key")
        check_choice(self.cache_ttl, TTLS, "ModelSettings.cache_ttl")
        self._check_many()

    def _check_many(self) -> None:
        for name, given in (("stop", self.stop), ("tool_choices", self.tool_choices)):
            force_setattr(self, name, as_tuple(given, f"ModelSettings.{name}"))
        for text in (*self.stop, *self.tool_choices):
            check_text(text, "ModelSettings.stop and tool_choices")
        force_setattr(self, "extra", as_tuple(self.extra, "ModelSettings.extra"))
        for one in self.extra:
            check_type(one, (Extra,), "ModelSettings.extra")
            if one.headers:
                raise BadValue(
                    "ModelSettings.extra has headers, and settings are written to the log of a run. "
                    "Set headers with open_model(..., auth=...)."
                )

    @classmethod
    def from_json(cls, text: str | bytes) -> "ModelSettings":
        """Return the settings that `to_json` wrote. BadDocument when it is something else."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadDocument(f"This is not the JSON of ModelSettings: {error}. Pass what `to_json` returned.") from None

    def to_json(self) -> str:
        """Return the settings as JSON: only what is set."""
        return msgspec.json.encode(self).decode()

    @property
    def tools_named(self) -> tuple[str, ...]:
        """The tools that must be there for these settings."""
        return tuple(name for name in (self.tool_choice, *self.tool_choices) if name and name not in MODES)

    def over(self, base: "ModelSettings | None") -> "ModelSettings":
        """Return the base with what is set here in its place."""
        if base is None:
            return self
        unset = _UNSET
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) != getattr(unset, name)}
        return replace(base, **given)

    def sampling(self, base: Settings) -> Settings:
        """Return what is sampled, where nothing was set here as in the base."""
        return Settings(
            base.max_output_tokens if self.max_output_tokens is None else self.max_output_tokens,
            base.temperature if self.temperature is None else self.temperature,
            base.top_p if self.top_p is None else self.top_p,
            base.top_k if self.top_k is None else self.top_k,
            self.stop or base.stop,
            base.seed if self.seed is None else self.seed,
        )

    def reasoning(self, base: Reasoning) -> Reasoning:
        """Return how to think, where nothing was set here as in the base."""
        if self.effort is None and self.thinking is None and self.thinking_budget is None:
            return replace(base, show=self.show) if self.show else base
        return Reasoning(
            self.effort or base.effort,
            base.budget if self.thinking_budget is None else self.thinking_budget,
            "auto" if self.thinking is None else THINKING[self.thinking],
            self.show or base.show,
        )

    def cache(self, base: Cache) -> Cache:
        """Return how prompts are cached, where nothing was set here as in the base."""
        if not self.cache_ttl and not self.cache_key:
            return base
        return replace(base, ttl=self.cache_ttl or base.ttl, key=self.cache_key or base.key)

    def choice(self, base: Choice, *, turn: int = 0) -> Choice:
        """Return which tools may be called in the request after so many answers of a run."""
        name = self.tool_choices[turn] if turn < len(self.tool_choices) else self.tool_choice
        parallel = base.parallel if self.parallel is None else self.parallel
        if not name:
            return replace(base, parallel=parallel)
        if name in MODES:
            return Choice(MODES[name], parallel=parallel, stated=True)
        return Choice("named", (name,), parallel)

    def extras(self, wire: str) -> tuple[Extra, ...]:
        """Return the fields of the body for this wire, and those that were given for others."""
        field = TIER_FIELDS.get(wire)
        if not self.service_tier or field is None:
            return self.extra
        return (*self.extra, Extra(wire, msgspec.json.encode({field: self.service_tier}).decode()))

    def apply_to(self, ask: Ask, *, turn: int = 0) -> Ask:
        """Return the ask with these settings. Without tools there is nothing to choose."""
        return replace(
            ask,
            settings=self.sampling(ask.settings),
            reasoning=self.reasoning(ask.reasoning),
            cache=self.cache(ask.cache),
            choice=self.choice(ask.choice, turn=turn) if ask.tools else ask.choice,
            extra=(*ask.extra, *self.extras(ask.target.wire)),
            foreign_reasoning=self.foreign_reasoning or ask.foreign_reasoning,
        )


_UNSET = ModelSettings()
