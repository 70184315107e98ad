"""How a model is to be asked, as one value: for a harness, a model, an agent, or a single run. Pure, and written as JSON."""

from typing import Literal

import msgspec
from msgspec.structs import force_setattr, replace

from evener.errors import BadDocument, BadValue
from evener.transcript.ask import (
    EFFORTS,
    SHOWS,
    Ask,
    Choice,
    ChoiceMode,
    Effort,
    Extra,
    Reasoning,
    ReasoningMode,
    ReasoningShow,
    Settings,
)
from evener.transcript.blocks import as_tuple, check_choice, check_number, check_text, check_texts, check_type

__all__ = ["ModelSettings"]

MODES: dict[str, ChoiceMode] = {"auto": "auto", "required": "required", "none": "none"}
TIER_FIELDS = {
    "anthropic_messages": "service_tier",
    "gemini": "serviceTier",
    "openai_chat": "service_tier",
    "openai_responses": "service_tier",
}
THINKING: dict[bool, ReasoningMode] = {True: "on", False: "off"}


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is not given stays as it is: as the model was opened, or as the harness around has it.

    `tool_choice` is "auto", "required", "none" or the name of a tool; it holds for every request of a run. `tool_choices` are
    those of its first requests, one each: `("required",)` lets the model answer from the second on. `parallel` allows several
    calls in one answer. `effort`, `thinking` and `thinking_budget` say how hard to think, `show` asks for readable reasoning,
    `foreign_reasoning` says what becomes of what another model thought: "drop", or "text". `stop` are texts at which an
    answer ends. `service_tier` is in the provider's own words. `extra` has fields of the body for one wire, untouched;
    headers belong to the `auth` of `open_model`, as a run's settings are written to its log.
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
    extra: tuple[Extra, ...] = ()

    def __post_init__(self) -> None:
        check_number(self.max_output_tokens, "ModelSettings.max_output_tokens", least=1, whole=True)
        check_number(self.temperature, "ModelSettings.temperature")
        check_number(self.top_p, "ModelSettings.top_p")
        check_number(self.top_k, "ModelSettings.top_k", whole=True)
        check_number(self.seed, "ModelSettings.seed", whole=True)
        check_number(self.thinking_budget, "ModelSettings.thinking_budget", least=0, whole=True)
        check_type(self.thinking, (bool, type(None)), "ModelSettings.thinking")
        check_type(self.parallel, (bool, type(None)), "ModelSettings.parallel")
        if self.effort is not None:
            check_choice(self.effort, EFFORTS, "ModelSettings.effort")
        check_choice(self.show, SHOWS, "ModelSettings.show")
        check_choice(self.foreign_reasoning, ("", "drop", "text"), "ModelSettings.foreign_reasoning")
        check_texts(self, "tool_choice", "service_tier")
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
                    "Put headers on with open_model(..., auth=...)."
                )

    @classmethod
    def from_json(cls, text: str | bytes) -> "ModelSettings":
        """Return the settings that `to_json` wrote. BadDocument when it is something else."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadDocument(f"These are no settings of a model: {error}.") from None

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
            choice=self.choice(ask.choice, turn=turn) if ask.tools else ask.choice,
            extra=(*ask.extra, *self.extras(ask.target.wire)),
            foreign_reasoning=self.foreign_reasoning or ask.foreign_reasoning,
        )


_UNSET = ModelSettings()
