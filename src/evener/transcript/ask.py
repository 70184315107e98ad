"""All that one model call needs, in neutral words. Codecs turn it into bytes; they decide nothing. Pure values."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from evener.transcript.blocks import CacheTtl
from evener.transcript.checks import check_object, check_text, json_object, json_text
from evener.transcript.origin import Origin
from evener.transcript.transcript import Transcript

__all__ = [
    "Ask",
    "Cache",
    "Choice",
    "ChoiceMode",
    "Effort",
    "Extra",
    "HostedTool",
    "OutputSchema",
    "Reasoning",
    "Settings",
    "State",
    "ToolSpec",
]

Effort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How hard to think, on one scale; each wire has its own words for it."""


ChoiceMode = Literal["auto", "required", "none", "named"]


class ToolSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool as the model sees it. `schema` is the JSON text of a JSON Schema for the arguments; a mapping is taken, too.

    `strict` asks the provider to enforce the schema; None leaves it to the wire. `extra` is the JSON text of fields that
    only the wire named in `wire` knows.
    """

    name: str
    description: str = ""
    schema: str = '{"type":"object","properties":{}}'
    strict: bool | None = None
    extra: str = ""
    wire: str = ""
    cache: CacheTtl = ""

    def __post_init__(self) -> None:
        check_text(self.name, "ToolSpec.name")
        check_text(self.description, "ToolSpec.description")
        if isinstance(self.schema, Mapping):
            force_setattr(self, "schema", json_text(self.schema, "ToolSpec.schema"))
        check_object(self.schema, "ToolSpec.schema")
        if self.extra != "":
            check_object(self.extra, "ToolSpec.extra")

    @property
    def input_schema(self) -> dict[str, object]:
        """The schema, decoded afresh."""
        return json_object(self.schema, f"The schema of tool {self.name!r}")


class HostedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool that the provider runs: its declaration, verbatim, for one wire."""

    wire: str
    raw: str
    name: str = ""

    def __post_init__(self) -> None:
        check_text(self.wire, "HostedTool.wire")
        check_object(self.raw, "HostedTool.raw")
        check_text(self.name, "HostedTool.name")


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which tools may or must be called. `names` narrows `named` (exactly one) or `auto`/`required` (a subset).

    `parallel` None leaves it to the provider; `stated` says that `auto` is to be written out.
    """

    mode: ChoiceMode = "auto"
    names: tuple[str, ...] = ()
    parallel: bool | None = None
    stated: bool = False


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Sampling and limits. None means: not sent. What a wire does not know becomes a Loss."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None


class Reasoning(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the model should think.

    mode `auto` switches thinking on when `effort` or `budget` asks for it, `default` sends the effort and leaves the switch
    as the model has it, `on`, `off` and `between_tools` set it. `show` asks for readable reasoning (`summary`, `concise`,
    `detailed`) or none (`omitted`).
    """

    effort: Effort | None = None
    budget: int | None = None
    mode: Literal["auto", "default", "on", "off", "between_tools"] = "auto"
    show: Literal["", "summary", "concise", "detailed", "omitted"] = ""


class OutputSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The shape of the final answer. An empty `schema` asks for any JSON object."""

    schema: str = ""
    name: str = "answer"
    description: str = ""
    strict: bool | None = None

    def __post_init__(self) -> None:
        if isinstance(self.schema, Mapping):
            force_setattr(self, "schema", json_text(self.schema, "OutputSchema.schema"))
        if self.schema != "":
            check_object(self.schema, "OutputSchema.schema")


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Prompt caching. `moving`: we keep marks after the stable prefix and the newest turns. `marks`: only the marks on the
    blocks themselves. `provider`: the provider places them (where it can). `key` routes equal prefixes to one place.
    """

    mode: Literal["off", "marks", "moving", "provider"] = "marks"
    ttl: CacheTtl = ""
    key: str = ""


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who holds the past: `replay` sends it, `chain` names the previous response, `conversation` a stored conversation.

    `store` None leaves keeping to the provider's default. `sealed` asks for encrypted reasoning, so that replay works.
    """

    mode: Literal["replay", "chain", "conversation"] = "replay"
    id: str = ""
    store: bool | None = False
    sealed: bool = True


class Extra(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fields for one named wire, untouched: `body` is the JSON text of an object, `headers` are name and value.

    With `provider` they are for that one only: what an imitator of a wire has added, its maker would refuse.
    """

    wire: str
    body: str = "{}"
    headers: tuple[tuple[str, str], ...] = ()
    provider: str = ""

    def __post_init__(self) -> None:
        check_text(self.wire, "Extra.wire")
        check_object(self.body, "Extra.body")
        check_text(self.provider, "Extra.provider")

    def is_for(self, wire: str, provider: str) -> bool:
        """Whether a request on this wire to this provider carries them."""
        return self.wire == wire and self.provider in ("", provider)


class Ask(msgspec.Struct, frozen=True):
    """One model call. `target` says who is asked: seals made by others stay behind."""

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
