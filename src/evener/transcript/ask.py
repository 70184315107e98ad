"""All that one model call needs, in neutral words. Codecs turn it into bytes; they decide nothing. Pure values."""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec
from msgspec.structs import force_setattr

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
    """What a tool takes that is called with a text instead of arguments: any text, or one that fits a grammar.

    `syntax` says how `grammar` is written (`lark`, `regex`); both are empty for any text.
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
    """A tool as the model sees it. `schema` is the JSON text of a JSON Schema for the arguments; a mapping is taken, too.

    `strict` asks the provider to enforce the schema; None leaves it to the wire. `extra` is the JSON text of fields that
    only the wire named in `wire` knows, and with `provider` only that one on it. `free` marks a tool that takes a text; its
    schema is `FREE_SCHEMA`, and where a wire has no such tools it is a function of one string. `namespace` is the group it
    belongs to; its name is qualified then. `inline`: the conversation itself declares it to its own wire, others must offer it.
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

    def __post_init__(self) -> None:
        check_texts(self, "name", "description", "wire", "provider")
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
    """A tool that the provider runs: its declaration, verbatim, for one wire, and with `provider` only for that one on it.

    `inline`: the conversation itself declares it.
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
    """Which tools may or must be called. `names` narrows `named` (exactly one) or `auto`/`required` (a subset).

    `parallel` None leaves it to the provider; `stated` says that `auto` is to be written out.
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
    """Sampling and limits. None means: not sent. What a wire does not know becomes a Loss."""

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


class Reasoning(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the model should think.

    mode `auto` switches thinking on when `effort` or `budget` asks for it, and off for a budget of nothing; `default` sends
    the effort and leaves the switch as the model has it; `on`, `off` and `between_tools` set it. `show` asks for readable
    reasoning (`summary`, `concise`, `detailed`) or none (`omitted`).
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

    `form` is how it is asked for: by the provider's own means, as the arguments of a tool, or in words; empty leaves the
    choice to the model's row.
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
    """Prompt caching. `moving`: we keep marks after the stable prefix and the newest turns. `marks`: only the marks on the
    blocks themselves. `provider`: the provider places them (where it can). `key` routes equal prefixes to one place.
    """

    mode: CacheMode = "marks"
    ttl: CacheTtl = ""
    key: str = ""

    def __post_init__(self) -> None:
        check_choice(self.mode, CACHE_MODES, "Cache.mode")
        check_choice(self.ttl, TTLS, "Cache.ttl")
        check_text(self.key, "Cache.key")


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who holds the past: `replay` sends it, `chain` names the previous response, `conversation` a stored conversation.

    `id` is the provider's name for what it holds; empty: nothing yet. `after` is the last message of the transcript that is
    part of it: only what follows goes out. Without it, every message of the transcript is new to the provider. `store` None
    leaves keeping to the provider's default. `sealed` asks for encrypted reasoning, so that replay works;
    None asks for it where it can be had, and True reports where it cannot.
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
    """Fields for one named wire, untouched: `body` is the JSON text of an object, `headers` are name and value.

    With `provider` they are for that one only: what an imitator of a wire has added, its maker would refuse.
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
    """One model call. `target` says who is asked: seals made by others stay behind.

    `refuse_losses` names the losses with which it must not be sent: codes, their beginnings, or kinds.
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
