"""Tools that a model was trained on: standard tools are sent in its maker's form, and its calls are converted to standard
ones. Pure.

The log, the policy and the tools have only standard calls (`edit`, `shell`, ...), whatever model made them. A past call that
the form cannot express is sent as a plain call. A form is used only if all tools that it stands for are offered.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from evener.encodings.native.computer import COMPUTER_FORMS
from evener.encodings.native.files import FILE_FORMS
from evener.encodings.native.form import NativeCall, NativeForm
from evener.encodings.prepared import OwnTool, TextStyle
from evener.transcript.ask import Ask, Extra, HostedTool, ToolSpec
from evener.transcript.blocks import Block, HostedBlock, ImageBlock, Inline, Origin, Remote, Seal, ToolCall, ToolResult
from evener.transcript.delta import ArgumentsDelta, CallBegun, CallEnded, Delta, Failed, HostedAdded, SealAdded, Stopped
from evener.transcript.loss import Loss, loss_in
from evener.transcript.message import Message
from evener.wire.prefix import OWN, dumps, fields, word
from evener.wire.quirks import Quirks

FORMS: Mapping[str, NativeForm] = {**FILE_FORMS, **COMPUTER_FORMS}
"""By the type that a row names."""


# The tools of a request.


def choose_own_tools(ask: Ask, quirks: Quirks) -> tuple[OwnTool, ...]:
    """Return the native forms to use for an ask. If the tool choice names tools, they are sent as plain functions."""
    if not quirks.own_tools or not quirks.hosted or ask.choice.names:
        return ()
    specs = [tool for tool in ask.tools if isinstance(tool, ToolSpec)]
    names = {spec.standard: spec.name for spec in specs if spec.standard}
    if not names:  # each form needs some of them
        return ()
    taken = {spec.name for spec in specs if not spec.standard}
    screen = next((spec.screen for spec in specs if spec.screen), (0, 0))
    found: list[OwnTool] = []
    for type in quirks.own_tools:
        form = FORMS.get(type)
        if form is None or not _is_usable(form, ask, names, taken):
            continue
        covered = tuple((standard, names[standard]) for standard in form.stands_for if standard in names)
        if not any(pair in one.names for one in found for pair in covered):  # the first form counts
            found.append(OwnTool(type, covered, screen, "navigate" in names))
    return tuple(found)


def _is_usable(form: NativeForm, ask: Ask, names: Collection[str], taken: Collection[str]) -> bool:
    """True if all standard tools of a form are offered, and no other tool has one of its names.

    A form whose results must be pictures is not usable if the provider stores the calls: a call without a picture could not be
    sent in another form.
    """
    held = form.needs_picture and ask.state.mode != "replay"
    free = bool(form.family) or not any(name in taken for name in form.names)
    return form.wire == ask.target.wire and free and not held and all(name in names for name in form.needs)


def declare_own_tools(tools: Sequence[ToolSpec | HostedTool], own: Iterable[OwnTool]) -> tuple[ToolSpec | HostedTool, ...]:
    """Return the tools, with each native tool at the place of the first standard tool that it replaces."""
    owner = {name: one for one in own for _, name in one.names}
    made: list[ToolSpec | HostedTool] = []
    for tool in tools:
        one = owner.get(tool.name) if isinstance(tool, ToolSpec) else None
        if one is None:
            made.append(tool)
            continue
        form = FORMS[one.type]
        native = HostedTool(form.wire, dumps(form.declare(one)).decode(), form.call)
        if native not in made:
            made.append(native)
    return tuple(made)


def extras_of(own: Iterable[OwnTool]) -> tuple[Extra, ...]:
    """Return the fields of the request that the native tools need beside their declarations."""
    return tuple(extra for one in own if (extra := FORMS[one.type].extra))


# The history.

_kept = msgspec.json.Decoder(NativeCall)


def find_pictured(messages: Iterable[Message]) -> frozenset[str]:
    """Return the ids of calls whose results show a picture that can be sent."""
    return frozenset(
        block.call_id
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolResult) and not block.is_error
        if any(isinstance(one, ImageBlock) and isinstance(one.source, Inline | Remote) for one in block.content)
    )


def rewrite_message(
    message: Message, style: TextStyle, waiting: dict[str, str], pictured: Collection[str], losses: list[Loss]
) -> Message:
    """Return a message with its calls, or the results of such calls, in the native forms.

    `waiting` has, by the id of a call, the call as it went out; `pictured` are the calls whose results show a picture.
    """
    blocks: list[Block] = []
    for block in message.blocks:
        if isinstance(block, ToolCall):
            blocks.append(_rewrite_call(block, message, style, waiting, pictured, losses))
        elif isinstance(block, ToolResult) and block.call_id in waiting:
            call = _kept.decode(waiting.pop(block.call_id))
            blocks.append(_rewrite_result(block, call, style.target))
            if FORMS[call.form].needs_picture and block.text:
                losses.append(
                    loss_in("degraded", "tool_result", "this form takes only the picture; the text is not sent", message, block)
                )
        else:
            blocks.append(block)
    return message if tuple(blocks) == message.blocks else replace(message, blocks=tuple(blocks))


def _rewrite_call(
    call: ToolCall,
    message: Message,
    style: TextStyle,
    waiting: dict[str, str],
    pictured: Collection[str],
    losses: list[Loss],
) -> ToolCall | HostedBlock:
    for one in style.own:
        standard = next((standard for standard, name in one.names if name == call.name), "")
        if not standard or call.redacted or not call.parses:
            continue
        form = FORMS[one.type]
        native = _recall(call, one.type, style.target) if form.write is None else _write(call, standard, one.type)
        if form.write is None and (native is None or (form.needs_picture and call.id not in pictured)):
            why = "made in another form" if native is None else "answered without a picture, which this form needs"
            losses.append(loss_in("degraded", "tool_call", f"it was {why}; sent as a plain call", message, call))
            return call
        if native is None:
            return call
        if form.answer is not None:
            waiting[call.id] = dumps(native).decode()
        return _write_item(call, native, form) if form.is_item else _name_call(call, native, form, style.target)
    return call


def _write(call: ToolCall, standard: str, type: str) -> NativeCall | None:
    """Return a standard call in a form that can express it."""
    form = FORMS[type]
    written = form.write(standard, call.args) if form.write else None
    return None if written is None else NativeCall(type, form.call, msgspec.Raw(dumps(written)))


def _recall(call: ToolCall, type: str, target: Origin) -> NativeCall | None:
    """Return a call as the model wrote it, if it was in this form and for this provider."""
    seal = call.seal
    if seal is None or not target.owns(seal.origin.wire, seal.origin.provider):
        return None
    kept = fields(seal.data).get(OWN)
    found = _kept.decode(kept) if kept is not None else None
    return found if found is not None and found.form == type else None


def _write_item(call: ToolCall, native: NativeCall, form: NativeForm) -> HostedBlock:
    item = {**fields(native.given), "call_id": call.id}
    return HostedBlock(
        dumps(item).decode(), form.wire, f"{form.call} {call.name}", opens=call.id, id=word(fields(native.given).get("id"))
    )


def _name_call(call: ToolCall, native: NativeCall, form: NativeForm, target: Origin) -> ToolCall:
    """Return a call under its native name and toolset."""
    seal = call.seal
    if form.family:
        own = fields(seal.data) if seal else {}
        seal = Seal(dumps({**own, "toolset_name": form.family}).decode(), target)
    return replace(call, name=native.name, raw=bytes(native.given).decode(), seal=seal)


def _rewrite_result(result: ToolResult, call: NativeCall, target: Origin) -> ToolResult | HostedBlock:
    answer = FORMS[call.form].answer
    assert answer is not None  # else the call does not wait
    made = answer(result, call, target)
    if isinstance(made, ToolResult):
        return made
    item = dumps({**made, "call_id": result.call_id}).decode()
    line = f"{made['type']}: {result.text}"
    return HostedBlock(item, FORMS[call.form].wire, line, closes=result.call_id, cache=result.cache)


# The answer.


class OwnReader:
    """Feed it deltas; it returns deltas in which native calls are standard ones. A call is returned when it is complete."""

    def __init__(self, own: Sequence[OwnTool]) -> None:
        self._own = {name: one for one in own for name in FORMS[one.type].names}
        self._begun: dict[int, CallBegun] = {}
        self._seals: dict[int, SealAdded] = {}
        self._called = False

    def feed(self, deltas: list[Delta]) -> list[Delta]:
        """Return the deltas for these deltas, with native calls as standard calls."""
        found: list[Delta] = []
        for delta in deltas:
            match delta:
                case CallBegun(index, _, name) if name in self._own:
                    self._begun[index] = delta
                case SealAdded(index) if index in self._begun:
                    self._seals[index] = delta
                case ArgumentsDelta(index) if index in self._begun:
                    pass
                case CallEnded(index, raw) if index in self._begun:
                    found += self._end(self._begun.pop(index), raw, self._seals.pop(index, None))
                case HostedAdded(index, HostedBlock(raw=raw, opens=id)) if id and (kind := _type_of(raw)) in self._own:
                    found += self._call(CallBegun(index, id, kind), raw, None)
                    self._called = True
                case Stopped("done", raw, detail) if self._called:
                    found.append(Stopped("tools", raw, detail))
                case Stopped() | Failed():
                    found += (*self._begun.values(), *self._seals.values(), delta)
                    self._begun, self._seals = {}, {}
                case _:
                    found.append(delta)
        return found

    def _end(self, begun: CallBegun, raw: str, seal: SealAdded | None) -> list[Delta]:
        """End a call. A call of another tool with the name of a toolset's member stays unchanged."""
        family = FORMS[self._own[begun.name].type].family
        if family and (seal is None or word(fields(seal.data).get("toolset_name")) != family):
            return [begun, *([seal] if seal else []), CallEnded(begun.index, raw)]
        return self._call(begun, raw, seal)

    def _call(self, begun: CallBegun, raw: str, seal: SealAdded | None) -> list[Delta]:
        one = self._own[begun.name]
        form, names, given = FORMS[one.type], dict(one.names), _object(raw)
        standard = form.read(given, begun.name, one.screen) if given is not None else None
        # Where it cannot be read, the tool that can do the most says what is wrong.
        name, arguments = standard or ("edit" if "edit" in names else one.names[0][0], None)
        said = raw if arguments is None else dumps(arguments).decode()
        if form.write is None and given is not None:
            seal = _keep(NativeCall(one.type, begun.name, msgspec.Raw(raw.encode())), begun.index, seal)
        sealed = [seal] if seal else []
        return [CallBegun(begun.index, begun.id, names.get(name, name)), *sealed, CallEnded(begun.index, said)]


def _keep(call: NativeCall, index: int, seal: SealAdded | None) -> SealAdded:
    """Return the seal of a call with the call as the model made it."""
    own = {name: value for name, value in fields(seal.data).items() if name != "toolset_name"} if seal else {}
    return SealAdded(index, "call", dumps({**own, OWN: call}).decode(), seal.id if seal else "")


class _Typed(msgspec.Struct):
    type: str = ""


def _type_of(raw: str) -> str:
    return msgspec.json.decode(raw, type=_Typed).type


def _object(raw: str) -> dict[str, object] | None:
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return None
