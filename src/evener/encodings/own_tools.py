"""Tools that a model was trained on: standard tools go out in its maker's form, and its calls come back as standard ones. Pure.

The log, the policy and the tools know the standard calls only (`edit`, `shell`, ...), whatever model made them. A past call
that the form cannot express goes out as the plain call that it is. A form is used only if all that it stands for is offered.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from evener.encodings.patches import read_patch, write_patch
from evener.encodings.prepared import OwnTool
from evener.transcript.ask import Ask, HostedTool, ToolSpec
from evener.transcript.blocks import Block, HostedBlock, ToolCall, ToolResult
from evener.transcript.delta import ArgumentsDelta, CallBegun, CallEnded, Delta, Failed, HostedAdded, Stopped
from evener.transcript.message import Message
from evener.wire.prefix import dumps
from evener.wire.quirks import Quirks

Arguments = Mapping[str, object]
StandardCall = tuple[str, dict[str, object]]
"""A standard tool and its arguments."""


class NativeForm(msgspec.Struct, frozen=True):
    """A maker's form of some standard tools. `call` names its calls, or with `answer` it is the type of its items, which are
    answered by items of that type. `read` gives the standard call, `write` the arguments (or the item) of one; None if it
    cannot be expressed.
    """

    wire: str
    stands_for: tuple[str, ...]
    needs: tuple[str, ...]
    declaration: Mapping[str, object]
    call: str
    read: Callable[[Arguments], StandardCall | None]
    write: Callable[[str, Arguments], Mapping[str, object] | None]
    answer: str = ""


# Messages: an editor of text files, and a shell.


def _read_editor(given: Arguments) -> StandardCall | None:
    path = given.get("path")
    match given.get("command"), given:
        case "view", {"view_range": [int(first), int(last)]}:
            limit = {"limit": last - first + 1} if last >= first else {}
            return "read", {"path": path, "offset": max(1, first), **limit}
        case "view", _:
            return "read", {"path": path}
        case "create", {"file_text": text}:
            return "write", {"path": path, "content": text}
        case "str_replace", {"old_str": old}:
            return "edit", {"path": path, "edits": [{"old": old, "new": given.get("new_str", "")}]}
        case "insert", {"insert_line": line}:
            text = given.get("insert_text", given.get("new_str", ""))
            return "edit", {"path": path, "edits": [{"old": "", "new": text, "line": line}]}
    return None


def _write_editor(tool: str, given: Arguments) -> Mapping[str, object] | None:
    path = given.get("path", ".")
    match tool, given:
        case "read", {"offset": int(first)}:
            limit = given.get("limit")
            last = first + limit - 1 if isinstance(limit, int) else -1
            return {"command": "view", "path": path, "view_range": [first, last]}
        case (("read" | "list"), _):
            return {"command": "view", "path": path}
        case "write", {"content": text}:
            return {"command": "create", "path": path, "file_text": text}
        case "edit", {"edits": [{"old": "", "new": text, "line": line, **more}]} if not more:
            return {"command": "insert", "path": path, "insert_line": line, "insert_text": text}
        case "edit", {"edits": [{"old": old, "new": new, **more}]} if not more:
            return {"command": "str_replace", "path": path, "old_str": old, "new_str": new}
    return None


def _read_bash(given: Arguments) -> StandardCall | None:
    match given:
        case {"command": command}:
            return "shell", {"command": command}
        case {"restart": True}:
            return "shell", {"command": "true"}  # every command has a shell of its own: there is none to start again
    return None


def _write_bash(tool: str, given: Arguments) -> Mapping[str, object] | None:
    return {"command": given["command"]} if tool == "shell" and "command" in given and not given.get("background") else None


# Responses: patches, and a shell.


def _read_patch_item(item: Arguments) -> StandardCall | None:
    match item.get("operation"):
        case {"type": "delete_file", "path": path}:
            return "delete", {"path": path}
        case {"type": "create_file", "path": path, "diff": str(diff)}:
            lines = [line.removeprefix("+") for line in diff.split("\n")]
            return "write", {"path": path, "content": "\n".join(lines).removesuffix("\n") + "\n" if diff else ""}
        case {"type": "update_file", "path": path, "diff": str(diff)}:
            return "edit", {"path": path, "edits": read_patch(diff)}
    return None


def _write_patch_item(tool: str, given: Arguments) -> Mapping[str, object] | None:
    operation: dict[str, object] | None = None
    match tool, given:
        case "delete", {"path": path}:
            operation = {"type": "delete_file", "path": path}
        case "write", {"path": path, "content": str(text)}:
            diff = "\n".join(f"+{line}" for line in text.removesuffix("\n").split("\n")) if text else ""
            operation = {"type": "create_file", "path": path, "diff": diff}
        case "edit", {"path": path, "edits": list(edits)} if (patch := write_patch(edits)) is not None:
            operation = {"type": "update_file", "path": path, "diff": patch}
    return None if operation is None else {"type": "apply_patch_call", "status": "completed", "operation": operation}


def _read_shell_item(item: Arguments) -> StandardCall | None:
    match item.get("action"):
        case {"commands": [*commands], **more} if all(isinstance(one, str) for one in commands):
            limit = more.get("timeout_ms")
            seconds = {"seconds": min(limit / 1000, 600)} if isinstance(limit, int) and limit > 0 else {}
            return "shell", {"command": "\n".join(map(str, commands)), **seconds}
    return None


def _write_shell_item(tool: str, given: Arguments) -> Mapping[str, object] | None:
    if tool != "shell" or not isinstance(given.get("command"), str) or given.get("background"):
        return None
    seconds = given.get("seconds")
    limit = {"timeout_ms": int(seconds * 1000)} if isinstance(seconds, int | float) else {}
    return {"type": "shell_call", "status": "completed", "action": {"commands": [given["command"]], **limit}}


EDITOR = NativeForm(
    wire="anthropic_messages",
    stands_for=("read", "list", "write", "edit"),
    needs=("read", "write", "edit"),
    declaration={"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    call="str_replace_based_edit_tool",
    read=_read_editor,
    write=_write_editor,
)
BASH = NativeForm(
    wire="anthropic_messages",
    stands_for=("shell",),
    needs=("shell",),
    declaration={"type": "bash_20250124", "name": "bash"},
    call="bash",
    read=_read_bash,
    write=_write_bash,
)
PATCH = NativeForm(
    wire="openai_responses",
    stands_for=("write", "edit", "delete"),
    needs=("write", "edit", "delete"),
    declaration={"type": "apply_patch"},
    call="apply_patch_call",
    read=_read_patch_item,
    write=_write_patch_item,
    answer="apply_patch_call_output",
)
SHELL = NativeForm(
    wire="openai_responses",
    stands_for=("shell",),
    needs=("shell",),
    declaration={"type": "shell", "environment": {"type": "local"}},
    call="shell_call",
    read=_read_shell_item,
    write=_write_shell_item,
    answer="shell_call_output",
)
FORMS: Mapping[str, NativeForm] = {"text_editor_20250728": EDITOR, "bash_20250124": BASH, "apply_patch": PATCH, "shell": SHELL}
"""By the type that a row names."""


# The tools of a request.


def choose_own_tools(ask: Ask, quirks: Quirks) -> tuple[OwnTool, ...]:
    """Return the native tools to use for an ask. Where the choice is narrowed by name, tools go out under their names."""
    if not quirks.own_tools or not quirks.hosted or ask.choice.names:
        return ()
    specs = [tool for tool in ask.tools if isinstance(tool, ToolSpec)]
    names = {spec.standard: spec.name for spec in specs if spec.standard}
    taken = {spec.name for spec in specs if not spec.standard}
    found = []
    for type in quirks.own_tools:
        form = FORMS.get(type)
        if form and form.wire == ask.target.wire and names.keys() >= {*form.needs} and form.call not in taken:
            covered = tuple((standard, names[standard]) for standard in form.stands_for if standard in names)
            found.append(OwnTool(type, covered))
    return tuple(found)


def declare_own_tools(tools: Sequence[ToolSpec | HostedTool], own: Iterable[OwnTool]) -> tuple[ToolSpec | HostedTool, ...]:
    """Return the tools with each native one where the first tool stood that it stands for."""
    owner = {name: one for one in own for _, name in one.names}
    made: list[ToolSpec | HostedTool] = []
    for tool in tools:
        one = owner.get(tool.name) if isinstance(tool, ToolSpec) else None
        if one is None:
            made.append(tool)
            continue
        form = FORMS[one.type]
        native = HostedTool(form.wire, dumps(form.declaration).decode(), form.call)
        if native not in made:
            made.append(native)
    return tuple(made)


# The history.


def rewrite_message(message: Message, own: Sequence[OwnTool], waiting: dict[str, str]) -> Message:
    """Return a message with its calls, or the results of such calls, in the native forms.

    `waiting` has, by the id of a call, the type of the item that must answer it.
    """
    blocks: list[Block] = []
    for block in message.blocks:
        if isinstance(block, ToolCall):
            blocks.append(_rewrite_call(block, own, waiting))
        elif isinstance(block, ToolResult) and block.call_id in waiting:
            blocks.append(_rewrite_result(block, waiting.pop(block.call_id), own))
        else:
            blocks.append(block)
    return message if tuple(blocks) == message.blocks else replace(message, blocks=tuple(blocks))


def _rewrite_call(call: ToolCall, own: Sequence[OwnTool], waiting: dict[str, str]) -> ToolCall | HostedBlock:
    for one in own:
        standard = next((standard for standard, name in one.names if name == call.name), "")
        if not standard or call.redacted or not call.parses:
            continue
        form = FORMS[one.type]
        written = form.write(standard, call.args)
        if written is None:
            return call
        if not form.answer:
            return replace(call, name=form.call, raw=dumps(written).decode())
        waiting[call.id] = form.answer
        item = dumps({**written, "call_id": call.id}).decode()
        return HostedBlock(item, form.wire, f"{form.call} {call.name}", opens=call.id)
    return call


ENDED = re.compile(r"\[(?:exit code (\d+)|ended after)[^\n]*\]\Z")
"""How the shell tool says that a command did not end well."""


def _rewrite_result(result: ToolResult, answer: str, own: Sequence[OwnTool]) -> HostedBlock:
    text = result.text
    item: dict[str, object] = {"type": answer, "call_id": result.call_id}
    if answer == SHELL.answer:
        end = ENDED.search(text)
        outcome: dict[str, object] = {"type": "exit", "exit_code": 1 if result.is_error else 0}
        if end:
            outcome = {"type": "exit", "exit_code": int(end[1])} if end[1] else {"type": "timeout"}
        item["output"] = [{"stdout": text, "stderr": "", "outcome": outcome}]
    else:
        item |= {"status": "failed" if result.is_error else "completed", "output": text}
    wire = FORMS[own[0].type].wire
    return HostedBlock(dumps(item).decode(), wire, f"{answer}: {text}", closes=result.call_id, cache=result.cache)


# The answer.


class OwnReader:
    """Feed deltas, get deltas in which native calls are standard ones. They are shown when they are whole."""

    def __init__(self, own: Sequence[OwnTool]) -> None:
        self._own = {FORMS[one.type].call: one for one in own}
        self._begun: dict[int, CallBegun] = {}
        self._called = False

    def feed(self, deltas: list[Delta]) -> list[Delta]:
        """Return the deltas that these make certain."""
        found: list[Delta] = []
        for delta in deltas:
            match delta:
                case CallBegun(index, _, name) if name in self._own:
                    self._begun[index] = delta
                case ArgumentsDelta(index) if index in self._begun:
                    pass
                case CallEnded(index, raw) if index in self._begun:
                    begun = self._begun.pop(index)
                    found += self._call(index, begun.id, begun.name, raw)
                case HostedAdded(index, HostedBlock(raw=raw, opens=id)) if id and (kind := _type_of(raw)) in self._own:
                    found += self._call(index, id, kind, raw)
                    self._called = True
                case Stopped("done", raw, detail) if self._called:
                    found.append(Stopped("tools", raw, detail))
                case Stopped() | Failed():
                    found += (*self._begun.values(), delta)
                    self._begun = {}
                case _:
                    found.append(delta)
        return found

    def _call(self, index: int, id: str, called: str, raw: str) -> list[Delta]:
        one = self._own[called]
        names = dict(one.names)
        given = _object(raw)
        standard = FORMS[one.type].read(given) if given is not None else None
        if standard is None:  # the tool that can do the most says what is wrong
            return [CallBegun(index, id, names.get("edit", one.names[0][1])), CallEnded(index, raw)]
        name, arguments = standard
        return [CallBegun(index, id, names.get(name, name)), CallEnded(index, dumps(arguments).decode())]


class _Typed(msgspec.Struct):
    type: str = ""


def _type_of(raw: str) -> str:
    return msgspec.json.decode(raw, type=_Typed).type


def _object(raw: str) -> dict[str, object] | None:
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return None
