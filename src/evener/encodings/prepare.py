"""Adapts an ask to what its model can do, before a codec writes it: tools, choice, structured answers. Pure.

If nothing needs to change, the ask is passed on unchanged, at once. Otherwise the part that does not depend on the messages
is a plan that is kept from turn to turn, and only new parts of the history are rewritten.
"""

from typing import get_args

from msgspec.structs import replace

from evener.encodings.examples import has_called_before, must_call, with_examples, worked_examples
from evener.encodings.forms import (
    FINAL_RESULT,
    alternatives,
    final_choice,
    final_of,
    final_tool,
    is_object,
    optional_arguments,
    wrap_schema,
)
from evener.encodings.history import rewrite_history
from evener.encodings.hosted_tools import declare_hosted_tools
from evener.encodings.own_tools import choose_own_tools, declare_own_tools, extras_of
from evener.encodings.prepared import EncodingName, Final, Plan, Prepared, TextStyle
from evener.encodings.words import (
    choose_encoding,
    choose_form,
    format_words,
    has,
    json_words,
    output_words,
    tell_choice,
    tool_words,
)
from evener.errors import BadValue
from evener.transcript.ask import Ask, Choice, Extra, HostedTool, OutputForm, OutputSchema, Settings, ToolSpec
from evener.transcript.blocks import CacheTtl, TextBlock
from evener.transcript.loss import Loss, loss_of
from evener.wire.quirks import Quirks
from evener.wire.request import report_choice

OBSERVATION = "Observation:"
MOST_STOPS = 4
FORCED = loss_of("degraded", "tool_choice", "this model answers wrongly without a tool, so it must call one before it answers")
ENCODINGS: tuple[EncodingName, ...] = get_args(EncodingName)


def prepare(ask: Ask, quirks: Quirks, *, encoding: EncodingName | None = None, prior: Prepared | None = None) -> Prepared:
    """Return the ask as its codec needs it. `prior` is the previous result for this conversation; it only saves work."""
    wanted = encoding or quirks.tool_encoding
    if wanted not in ENCODINGS:
        raise BadValue(f"There is no encoding {wanted!r}. Known are {', '.join(ENCODINGS)}.")
    if wanted == "native" and ask.output is None and quirks.tools and (not ask.tools or _is_plain(ask, quirks)):
        return Prepared(ask, (), "native", "")
    source = (
        *(ask.tools, ask.choice, ask.output, ask.settings, ask.reasoning, ask.transcript.system_blocks),
        *(quirks, wanted, ask.target, ask.foreign_reasoning, ask.state.mode),
    )
    plan = prior.plan if prior and prior.plan and prior.plan.source == source else _make_plan(ask, quirks, wanted, source)
    if plan.untouched:
        return Prepared(ask, plan.losses, plan.encoding, plan.form, plan)
    style = plan.style
    shows = bool(plan.examples) and not has_called_before(ask.transcript, ask.target)
    told = with_examples(plan.examples, ask.transcript) if shows else ask.transcript
    past = rewrite_history(prior.past if prior and not shows else None, style, told) if style else None
    transcript = past.transcript if past else told
    if transcript.system_blocks is not plan.system:
        transcript = transcript.with_system(plan.system)
    forced = plan.forced if plan.forced and must_call(ask.transcript) else None
    output = forced or plan.output
    made = replace(ask, transcript=transcript, tools=plan.tools, choice=plan.choice, output=output, settings=plan.settings)
    made = replace(made, extra=(*ask.extra, *plan.extra)) if plan.extra else made
    last = ask.transcript.last
    losses = (*plan.losses, *past.losses) if past else plan.losses
    losses = (*losses, _report_examples(plan)) if shows else losses
    losses = (*losses, FORCED) if forced else losses
    return Prepared(made, losses, plan.encoding, plan.form, plan, past, last.id if last else "")


def _report_examples(plan: Plan) -> Loss:
    """Return the loss for the added examples: the caller pays for their tokens."""
    size = sum(len(message.text) + sum(len(call.raw) for call in message.calls) for message in plan.examples)
    names = [call.name for message in plan.examples for call in message.calls]
    shown = " and ".join(dict.fromkeys(names))
    why = f"{len(names)} worked examples of {shown}, {size} characters: this model calls no tool without"
    return loss_of("added", "message", why, name="example")


def _may_force(ask: Ask) -> bool:
    """True if the user set no tool choice. A model this small would answer without a call, and wrongly."""
    return ask.choice.mode == "auto" and not ask.choice.stated and any(isinstance(tool, ToolSpec) for tool in ask.tools)


def _is_plain(ask: Ask, quirks: Quirks) -> bool:
    """True if the tools are sent as functions, and the choice allows any of them."""
    choice = ask.choice
    if choice.mode not in ("auto", "none") or choice.parallel is not None or choice.names:
        return False
    return not any([(tool.standard and quirks.own_tools) if type(tool) is ToolSpec else not tool.wire for tool in ask.tools])


class _Draft:
    """A plan while it is made."""

    def __init__(self, ask: Ask) -> None:
        self.losses: list[Loss] = []
        self.tools: tuple[ToolSpec | HostedTool, ...] = ask.tools
        self.choice = ask.choice
        self.output = ask.output
        self.settings = ask.settings
        self.form: OutputForm = ""
        self.forced: OutputSchema | None = None  # while the model must call before it answers
        self.wrapped = False
        self.parts: list[TextBlock] = []  # said after the system prompt
        self.extra: tuple[Extra, ...] = ()

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool for tool in self.tools if isinstance(tool, ToolSpec))

    def is_as(self, ask: Ask) -> bool:
        """True if the draft is the same as the ask."""
        return not self.parts and self.tools is ask.tools and self.choice == ask.choice and self.output is ask.output

    def say(self, text: str, cache: CacheTtl = "") -> None:
        if text:
            self.parts.append(TextBlock(text, cache=cache))


def _make_plan(ask: Ask, quirks: Quirks, wanted: EncodingName, source: tuple[object, ...]) -> Plan:
    draft = _Draft(ask)
    encoding = choose_encoding(wanted, ask, quirks, draft.losses)
    draft.tools, draft.extra = declare_hosted_tools(ask, quirks)
    functions = bool(draft.specs)
    if ask.output is not None:
        draft.form = choose_form(ask.output, ask, quirks, encoding, functions=functions, losses=draft.losses)
        if draft.form == "tool":
            _offer_final(draft, ask.output)
    style: TextStyle | None = None
    if encoding == "native":
        _keep_native(draft, ask, quirks)
        style = _use_own_tools(draft, ask, quirks)
    else:
        style = _put_into_text(draft, ask, quirks, encoding)
    offered = style is not None and style.offered
    strict = offered and encoding == "json_schema" and draft.output is not None and draft.output.strict
    return Plan(
        source=source,
        encoding=encoding,
        form=draft.form,
        losses=tuple(draft.losses),
        tools=() if style and not style.own else draft.tools,
        choice=Choice() if style and not style.own else draft.choice,
        output=draft.output,
        forced=draft.forced,
        settings=draft.settings,
        system=(*ask.transcript.system_blocks, *draft.parts) if draft.parts else ask.transcript.system_blocks,
        style=style,
        wanted=draft.choice,
        wrapped=draft.wrapped,
        untouched=style is None and draft.is_as(ask),
        optional=optional_arguments(_specs(ask)) if strict else {},
        examples=worked_examples(_list_callable(ask)) if offered and quirks.worked_examples else (),
        extra=draft.extra,
    )


def _list_callable(ask: Ask) -> tuple[ToolSpec, ...]:
    """Return the tools that may be called, those that must be called first."""
    named = [tool for tool in _specs(ask) if tool.name in ask.choice.names]
    return () if ask.choice.mode == "none" else tuple(named or _specs(ask))


def _specs(ask: Ask) -> list[ToolSpec]:
    return [tool for tool in ask.tools if isinstance(tool, ToolSpec)]


# Structured answers.


def _offer_final(draft: _Draft, output: OutputSchema) -> None:
    draft.tools = (*draft.tools, final_tool(output, [tool.name for tool in draft.specs]))
    draft.choice = final_choice(draft.choice)
    draft.wrapped = not is_object(output.schema)
    draft.output = None


def _shape_answer(draft: _Draft, ask: Ask, quirks: Quirks) -> None:
    """Ask for a structured answer by a field of the request, or in the prompt."""
    output = draft.output
    if output is None:
        return
    if draft.form == "prompted":
        draft.say(output_words(output))
        mode = quirks.json_mode and has(ask, "json_mode") and not ask.tools and is_object(output.schema)
        draft.output = OutputSchema(form="native") if mode else None
    elif output.schema and not is_object(output.schema) and not quirks.any_output:
        draft.output = replace(output, schema=wrap_schema(output.schema))
        draft.wrapped = True


# Tools by the provider's own means.


def _keep_native(draft: _Draft, ask: Ask, quirks: Quirks) -> None:
    if draft.tools:
        draft.choice, said = tell_choice(draft.choice, ask, quirks, draft.losses)
        draft.say("\n".join(said))
    _shape_answer(draft, ask, quirks)


def _use_own_tools(draft: _Draft, ask: Ask, quirks: Quirks) -> TextStyle | None:
    """Replace standard tools by native ones that the model was trained on, if its row names any."""
    own = choose_own_tools(ask, quirks) if draft.tools else ()
    if not own:
        return None
    draft.tools, draft.extra = declare_own_tools(draft.tools, own), (*draft.extra, *extras_of(own))
    return TextStyle("native", ask.target, ask.foreign_reasoning, own=own)


# Tools in the text.


def _put_into_text(draft: _Draft, ask: Ask, quirks: Quirks, encoding: EncodingName) -> TextStyle:
    _report_tools(draft, encoding, constrained=encoding == "json_schema" and quirks.output_schema)
    specs = draft.specs
    if not specs:
        report_choice(ask, draft.losses)
        _shape_answer(draft, ask, quirks)
        return TextStyle(encoding, ask.target, ask.foreign_reasoning)
    draft.choice = _drop_unknown(draft.choice, specs, draft.losses)
    marks = [tool.cache for tool in specs if tool.cache]
    draft.say(tool_words(specs), marks[-1] if marks else "")
    if encoding == "json_schema":
        return _envelop(draft, ask, quirks)
    draft.say(format_words(encoding, draft.choice))
    _shape_prompted(draft)
    if encoding == "react" and has(ask, "stop") and len(draft.settings.stop) < min(MOST_STOPS, quirks.stops):
        draft.settings = _stop_before_results(draft.settings)
    return TextStyle(encoding, ask.target, ask.foreign_reasoning, offered=True)


def _shape_prompted(draft: _Draft) -> None:
    """Ask for a structured answer in the prompt: with calls in the text there is no other way."""
    if draft.output is not None:
        draft.say(output_words(draft.output))
        draft.output = None


def _stop_before_results(settings: Settings) -> Settings:
    """Add a stop sequence, so that the model does not make up a result."""
    return settings if OBSERVATION in settings.stop else replace(settings, stop=(*settings.stop, OBSERVATION))


def _envelop(draft: _Draft, ask: Ask, quirks: Quirks) -> TextStyle:
    """Ask for calls and answer by one schema for the whole answer."""
    constrained = quirks.output_schema
    final: Final = final_of(draft.output)
    wrapped = constrained and not quirks.any_output
    schema = alternatives(draft.specs, draft.choice, draft.output, final=final, wrapped=wrapped)
    draft.say(json_words(draft.choice, draft.output, final=final, wrapped=wrapped, constrained=constrained))
    if draft.output is not None:
        draft.form = "native" if constrained else "prompted"
        draft.wrapped = wrapped and final == "object"
    if constrained and quirks.worked_examples and _may_force(ask):  # the words stay, and so does the cached prefix
        must = replace(draft.choice, mode="required")
        only = alternatives(draft.specs, must, draft.output, final=final, wrapped=wrapped)
        draft.forced = OutputSchema(only, name="reply", strict=True if quirks.strict else None)
    if constrained:
        draft.output = OutputSchema(schema, name="reply", strict=True if quirks.strict else None)
    else:
        why = "it cannot be enforced here; calls are asked for in the prompt"
        draft.losses += [loss_of("degraded", "output.schema", why)] if draft.output is None else []
        draft.output = OutputSchema() if quirks.json_mode and has(ask, "json_mode") else None
    listed = bool(draft.choice.parallel)
    return TextStyle(
        "json_schema", ask.target, ask.foreign_reasoning, offered=True, final=final, wrapped=wrapped, listed=listed
    )


def _drop_unknown(choice: Choice, specs: tuple[ToolSpec, ...], losses: list[Loss]) -> Choice:
    """Return the choice without tools that are not offered."""
    offered = {tool.name for tool in specs}
    names = tuple(name for name in choice.names if name in offered)
    if names == choice.names and (choice.mode != "named" or len(names) == 1):
        return choice
    losses.append(loss_of("degraded", "tool_choice", "a named tool is not offered"))
    return replace(choice, mode="auto" if choice.mode == "named" and len(names) != 1 else choice.mode, names=names)


def _report_tools(draft: _Draft, encoding: EncodingName, *, constrained: bool) -> None:
    for tool in draft.tools:
        if isinstance(tool, HostedTool):
            why = f"tools are described in the prompt ({encoding}); only its own provider can run it"
            draft.losses.append(loss_of("dropped", "tool.hosted", why, name=tool.name))
            continue
        if tool.extra:
            draft.losses.append(loss_of("dropped", "tool.fields", "tools are described in the prompt", name=tool.name))
        if tool.strict and not constrained and tool.name != FINAL_RESULT:
            draft.losses.append(loss_of("dropped", "tool.strict", "arguments in text cannot be enforced", name=tool.name))
