"""Questions of a server during a call: to the user, or to the model. Each is a run inside the call.

That run has its own log, and a fixed script: it calls `ask_user` for each field of a form, or the tool that asks the model.
So a question waits, is decided, limited and counted like any other. Does not talk to servers.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec.structs import replace

from evener.call_context import current_site, waiting
from evener.errors import EvenerError
from evener.harness import Harness, Thread
from evener.mcp.naming import name_sampling
from evener.model.seam import Askable, GivenAnswer
from evener.observe.cost import Cost
from evener.store.protocol import NoLog
from evener.tools.context import ToolContext
from evener.tools.result import Envelope, report_failure
from evener.tools.tool import Tool
from evener.toolset.question import ASK_USER, question_tool
from evener.transcript.ask import Ask, HostedTool, ModelSettings, OutputForm, OutputSchema, ToolSpec
from evener.transcript.blocks import Origin, ResultContent, TextBlock, ToolCall, ToolResult
from evener.transcript.delta import Delta
from evener.transcript.message import Message
from evener.transcript.reply import Reply, Stop, Usage
from evener.transcript.transcript import Transcript
from evener.wire.stream import deltas_of

Fields = Mapping[str, object]
ROUNDS = 3
"""How often the user is asked for a field before the server is told that there is no answer."""
MOST_ROUNDS = 10
"""How often a server may ask back in one call, as the SDK has it."""
MOST_QUESTION = 256 * 1024
"""Characters of one question, its images included."""
EMPTY = "(the user gave an empty answer)"
YES, NO = ("yes", "y", "true", "done", "ok"), ("no", "n", "false", "decline")
SAMPLE = "sampling"
SAMPLE_SCHEMA = {
    "type": "object",
    "properties": {
        "messages": {"type": "array", "items": {"type": "object", "additionalProperties": True}, "minItems": 1},
        "system": {"type": "string"},
        "max_tokens": {"type": "integer", "minimum": 1},
        "temperature": {"type": "number"},
        "stop": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["messages", "max_tokens"],
}


class ServerQuestion(msgspec.Struct, frozen=True):
    """A form to fill in, a page to visit, or messages for the model. `body` has the relevant part of what the server sent."""

    server: str
    kind: Literal["form", "visit", "sampling"]
    body: Fields

    @property
    def text(self) -> str:
        """The prompt of the question's run. Equal questions have equal prompts."""
        return _json(self)


def inner_tools(server: str, models: tuple[Askable, ...] = ()) -> tuple[Tool, ...]:
    """Return the tools of the runs that answer this server's questions. `models` are those of the run that called it."""
    return question_tool(), _sampling_tool(server, models)


async def put_question(asked: ServerQuestion, number: int, key: str) -> Fields | Envelope | None:
    """Return the answer, None if there is none; or an envelope, if the call must wait for it.

    Each question is asked once, however often the call runs. `number` counts the questions of the call, `key` is the call's.
    """
    site, thread = current_site.get(), _open_thread(asked.server, number, key, sampling=asked.kind == "sampling")
    if site is None or thread is None:
        return None
    try:
        known = next((one.text for one in (await thread.state()).transcript.messages if one.role == "user"), asked.text)
    except NoLog:
        known = asked.text
    if known != asked.text:
        return None  # the call was sent again, and the server has another question now
    quiet = current_site.set(replace(site, show=None))  # what it says is the server's business
    try:
        result = await thread.settle(asked.text)
    except EvenerError:
        return None
    finally:
        current_site.reset(quiet)
    if result.stop == "approval":
        return waiting(result.thread, result.approvals)
    return _read_answer(result.text) if result.ok else None


async def has_open_question(server: str, key: str) -> bool:
    """True if the last question of a call has no answer yet."""
    found = False
    for number in range(MOST_ROUNDS):
        thread = _open_thread(server, number, key)
        if thread is None:
            break
        try:
            found = (await thread.state()).finished is None
        except NoLog:
            break
    return found


def _open_thread(server: str, number: int, key: str, *, sampling: bool = False) -> Thread | None:
    """Return the thread of a call's question; None outside of a run, where no user can be asked.

    A rule of the run's policy can allow `sampling` without a question. It cannot answer a question to the user.
    """
    site = current_site.get()
    if site is None:
        return None
    harness = Harness(
        QuestionModel(server), tools=inner_tools(server, site.models), store=site.store, name=f"{site.path}/mcp-{server}",
        page_output=False, context=False, policy=site.policy if sampling else None,
    )  # fmt: skip
    child = site.inner().child if site.inner else key
    return harness.thread(sha256(f"{child}\0{number}".encode()).hexdigest()[:32], begin=True)


def _read_answer(text: str) -> Fields | None:
    """Return the answer from the last text of the question's run."""
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError:
        return None


# What to call next, as a model without a wire.


class QuestionModel:
    """Makes the calls for a server's question. It costs nothing, and decides only the wording."""

    fetches = False

    def __init__(self, server: str) -> None:
        self.name = f"mcp:{server}"

    def ask(
        self, transcript: Transcript, tools: Iterable[ToolSpec | HostedTool] = (), *, output: OutputSchema | None = None
    ) -> Ask:
        """Return the ask."""
        return Ask(transcript, Origin(wire="mcp", provider="mcp", model=self.name), tuple(tools), output=output)

    def most_cost(self, ask: Ask) -> Decimal:
        """Return 0: asking the user costs nothing."""
        del ask
        return Decimal(0)

    def capped(self, ask: Ask, money: Decimal) -> Ask | None:
        """Return the ask: asking the user costs nothing."""
        del money
        return ask

    def stream(self, ask: Ask, *, after: object = None) -> "_Saying":
        """Return the next step of the question."""
        del after
        return _Saying(_next_reply(ask.transcript), ask.target)


class _Saying:
    form: OutputForm = ""

    def __init__(self, reply: Reply, origin: Origin) -> None:
        self._left: list[Delta] = list(deltas_of(reply))
        message = Message.from_assistant_response(reply, origin=origin)
        self.answer = GivenAnswer(reply=reply, message=message, cost=Cost())

    async def read(self) -> list[Delta]:
        await asyncio.sleep(0)
        left, self._left = self._left, []
        return left

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""


def _next_reply(transcript: Transcript) -> Reply:
    prompt = next(message.text for message in transcript.messages if message.role == "user")
    asked = msgspec.json.decode(prompt, type=ServerQuestion)
    results = {one.call_id: one for message in transcript.messages for one in message.blocks if isinstance(one, ToolResult)}
    if asked.kind == "sampling":
        return _continue_sampling(asked, results)
    return _next_of_form(asked, results)


def _continue_sampling(asked: ServerQuestion, results: Mapping[str, ToolResult]) -> Reply:
    if SAMPLE not in results:
        return _call(ToolCall(SAMPLE, name_sampling(asked.server), _json(asked.body)))
    result = results[SAMPLE]
    return _end(_json({"error": _text(result)}) if result.is_error else _text(result))


def _next_of_form(asked: ServerQuestion, results: Mapping[str, ToolResult]) -> Reply:
    """Ask for all fields at once, then again for those with invalid answers. End with the valid answers."""
    found: dict[str, object] = {}
    calls: list[ToolCall] = []
    for number, field in enumerate(_fields(asked)):
        tries = [one for round in range(ROUNDS) if (one := results.get(f"field-{number}-{round}"))]
        wrong = ""
        if tries:
            if tries[-1].is_error:
                return _end(_json({"action": "decline"}))
            value, wrong = field.read(_text(tries[-1]))
            if not wrong:
                found |= {} if value is None else {field.name: value}
                continue
        if len(tries) == ROUNDS:
            return _end(_json({"action": "decline"}))
        calls.append(ToolCall(f"field-{number}-{len(tries)}", ASK_USER, _json(field.question(asked, wrong))))
    if calls:
        return _call(*calls)
    return _end(_json(_accept(asked, found)))


def _accept(asked: ServerQuestion, found: dict[str, object]) -> Fields:
    if found.pop(CONFIRM, True) is False:
        return {"action": "decline"}
    return {"action": "accept", "content": found} if asked.kind == "form" else {"action": "accept"}


CONFIRM = ""
"""The name of the field that stands for a form without fields, and for a visit."""
CONFIRMS = {"type": "boolean"}


class _Field(msgspec.Struct, frozen=True):
    """One field of a form: of a simple type, as the protocol has it."""

    name: str
    schema: Fields
    needed: bool

    def question(self, asked: ServerQuestion, wrong: str) -> Fields:
        """Return the arguments of `ask_user`."""
        words = [f"The MCP server {asked.server!r} asks: {asked.body.get('message', '')}"]
        if asked.kind == "visit":
            words.append(f"Open {asked.body.get('url', '')} if you know it, and answer when you are done there.")
        if self.name != CONFIRM:
            about = "; ".join(str(one) for one in (self.schema.get("title"), self.schema.get("description")) if one)
            optional = "" if self.needed else ", may be left empty"
            words.append(f"{self.name}{f' ({about})' if about else ''}: {self.kind}{optional}")
        if wrong:
            words.append(f"The last answer does not fit: {wrong}")
        choices = [shown for shown, _ in self.choices]
        return {"question": "\n".join(words), **({"choices": choices} if choices else {})}

    @property
    def kind(self) -> str:
        kind = str(self.schema.get("type", "string"))
        return "several values, with commas between them" if kind == "array" else f"a {kind}".replace("a i", "an i")

    @property
    def choices(self) -> tuple[tuple[str, object], ...]:
        """The allowed answers, as shown and as sent."""
        if self.schema.get("type") == "boolean":
            return (("yes", True), ("no", False))
        items = self.schema.get("items")
        return tuple(_choices(items if isinstance(items, dict) else self.schema))

    def read(self, text: str) -> tuple[object, str]:
        """Return the value that the user entered, None for an empty one; or what is wrong with it."""
        text = text.strip()
        if text in ("", EMPTY):
            if "default" in self.schema:
                return self.schema["default"], ""
            return None, "an answer is needed." if self.needed else ""
        value = self._value(text)
        if self.name == CONFIRM:
            return value, "" if isinstance(value, bool) else "answer yes or no."
        problems = _check(self.name, self.schema, value)
        return value, problems

    def _value(self, text: str) -> object:
        if self.schema.get("type") == "array":
            return [self._choice(part.strip()) for part in text.split(",") if part.strip()]
        if self.schema.get("type") in ("integer", "number"):
            return _number(text)
        return self._choice(text)

    def _choice(self, text: str) -> object:
        low = text.lower()
        if self.schema.get("type") == "boolean":
            return True if low in YES else False if low in NO else text
        return next((sent for shown, sent in self.choices if low in (shown.lower(), str(sent).lower())), text)


def _choices(schema: Fields) -> Iterator[tuple[str, object]]:
    named = schema.get("oneOf", schema.get("anyOf"))
    if isinstance(named, list):
        yield from ((str(one.get("title", one["const"])), one["const"]) for one in named if _has_const(one))
    elif isinstance(values := schema.get("enum"), list):
        names = schema.get("enumNames")
        shown = names if isinstance(names, list) and len(names) == len(values) else values
        yield from ((str(name), value) for name, value in zip(shown, values, strict=True))


def _has_const(one: object) -> bool:
    return isinstance(one, dict) and "const" in one


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check(name: str, schema: Fields, value: object) -> str:
    """Return what is wrong with the value of a field; empty if it fits."""
    try:
        whole = Tool.of("form", {"type": "object", "properties": {name: dict(schema)}}, function=_take, description="")
    except EvenerError as error:
        return f"the server's form cannot be read ({error})"
    found = whole.read(_json({name: value}))
    return "; ".join(map(str, found)) if isinstance(found, tuple) else ""


def _take(arguments: dict[str, object]) -> None:
    del arguments


def _fields(asked: ServerQuestion) -> list[_Field]:
    schema = asked.body.get("schema")
    found = schema.get("properties") if isinstance(schema, dict) else None
    needed = schema.get("required") if isinstance(schema, dict) else None
    if asked.kind == "visit" or not isinstance(found, dict) or not found:
        return [_Field(CONFIRM, CONFIRMS, True)]
    names = needed if isinstance(needed, list) else []
    return [_Field(name, one if isinstance(one, dict) else {}, name in names) for name, one in found.items()]


def _text(result: ToolResult) -> str:
    """Return the last text of a result. A line about changed arguments may come before it."""
    return next((block.text for block in reversed(result.content) if isinstance(block, TextBlock)), "")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


NOTHING = Usage(0, 0, 0, 0, 0, 0)


def _call(*calls: ToolCall) -> Reply:
    return Reply(calls, Stop("tools"), NOTHING)


def _end(text: str) -> Reply:
    return Reply((TextBlock(text),), Stop("done"), NOTHING)


# The model of the run, for a server.


class _Spoken(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant"]
    blocks: tuple[ResultContent, ...]


class _Asked(msgspec.Struct, frozen=True):
    """The arguments of the tool that asks the model."""

    messages: tuple[_Spoken, ...]
    max_tokens: int
    system: str = ""
    temperature: float | None = None
    stop: tuple[str, ...] = ()


def _sampling_tool(server: str, models: tuple[Askable, ...]) -> Tool:
    """Return the tool that sends a server's messages to the model. The model gets no tools."""

    async def sample(arguments: dict[str, object], context: ToolContext[object]) -> Envelope:
        asked = msgspec.convert(arguments, _Asked)
        site = current_site.get()
        if site is None or not models:
            return report_failure("There is no model to ask here.")
        harness = Harness(
            models, system=asked.system or None, store=site.store, name=f"{site.path}/{SAMPLE}",
            settings=ModelSettings(max_output_tokens=asked.max_tokens, temperature=asked.temperature, stop=asked.stop),
        )  # fmt: skip
        *before, last = (Message(role=one.role, blocks=one.blocks) for one in asked.messages)
        child = site.inner().child if site.inner else context.key
        thread = harness.thread(child, begin=True, history=before)
        try:
            result = await thread.settle(last)
        except EvenerError as error:
            return report_failure(f"The model could not answer: {error}")
        if not result.ok and result.stop != "length":
            return report_failure(f"The model did not answer ({result.stop}). {result.detail}")
        stop = "endTurn" if result.ok else "maxTokens"
        return Envelope(True, (TextBlock(_json({"text": result.text, "model": models[0].name, "stop": stop})),))

    return Tool.of(
        name_sampling(server),
        SAMPLE_SCHEMA,
        function=sample,
        description=f"Ask the model for the MCP server {server!r}. It sees these messages, and no tools.",
        effect="idempotent",
        approval=True,
        timeout=None,
    )
