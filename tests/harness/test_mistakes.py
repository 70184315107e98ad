"""What users get wrong, and what they are told: each is refused when it is given, in a sentence that says what to do."""

import asyncio
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from evener import Harness, Limits, ModelSettings, SqliteStore, Tool, ToolContext, find_harness, open_model, run, tool
from evener.errors import EvenerError
from evener.harness import Decision, Subagent, fan_out
from evener.hooks import Hook
from evener.model import Chain
from evener.testing import ScriptedModel, calls
from evener.transcript import Choice, Extra, Message, Reasoning, Settings, TextBlock, ToolCall, ToolSpec, Transcript


@tool(effect="write", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def made(**more: object) -> Harness:
    return Harness(ScriptedModel(lambda _: "done"), **{"store": "memory", **more})  # type: ignore[arg-type]


def asked(prompt: object, **more: object) -> object:
    return made().run_sync(prompt, **more)  # type: ignore[arg-type]


def decided(decisions: object, *, key: str = "a") -> None:
    """Decide about a call that waits."""
    harness = Harness(ScriptedModel([calls(ToolCall.of("a", "pay", {"amount": 1}))]), tools=[pay], store="memory")
    waiting = harness.run_sync("go")
    assert waiting.approvals[0].key == key
    harness.decide_sync(waiting.thread, decisions)  # type: ignore[arg-type]


def opened(**more: object) -> None:
    open_model("openai:gpt-5", **{"key": "k", "environ": {}, **more})  # type: ignore[arg-type]


def scripted(line: object) -> None:
    Harness(ScriptedModel([line]), store="memory").run_sync("go")  # type: ignore[list-item]


def fanned(prompts: object, **more: object) -> None:
    asyncio.run(fan_out(ScriptedModel(lambda _: "x"), prompts, **more))  # type: ignore[arg-type]


def untyped() -> None:
    def look(item):  # type: ignore[no-untyped-def]
        """Look."""
        return item

    tool(look)


def starred() -> None:
    def look(*items: str) -> str:
        """Look."""
        return "".join(items)

    tool(look)


def silent() -> None:
    def look(item: str) -> str:
        """ """
        return item

    tool(look)


def twice() -> None:
    made(tools=[pay, pay])


def streamed() -> None:
    made().stream("go")


def unmatched() -> None:
    run(ScriptedModel([]), tool_schemas=[{"name": "a"}], user_message="go")


def mapped() -> None:
    def look(prices: dict[tuple[int, int], str]) -> str:
        """Look."""
        return str(prices)

    tool(look)


def steered(prompt: str) -> None:
    harness = made()
    asyncio.run(harness.thread(harness.run_sync("go").thread).steer(prompt))


def compiled(model: object) -> None:
    asyncio.run(made().thread().compile(model, prompt="go"))  # type: ignore[arg-type]


class Mute:
    """A provider that cannot be asked."""

    name = "mute"
    complete = "nothing"


def in_context() -> None:
    ToolContext(call_id="a", deps=None).progress(fraction=2)


SCHEMA = {"type": "array", "items": {"type": "string"}}
MISTAKES: list[tuple[str, Callable[[], object], str]] = [
    ("no model", lambda: Harness([], store="memory"), "A harness needs a model"),
    ("a model that is a number", lambda: Harness(3), "`model` takes a model string"),  # type: ignore[arg-type]
    ("an unknown provider", lambda: open_model("opnai:gpt-5", environ={}), "opnai"),
    ("a model without a provider", lambda: open_model("gpt-5", environ={}), "gpt-5"),
    ("no key", lambda: open_model("openai:gpt-5", environ={}), "OPENAI_API_KEY"),
    ("a base_url with a query", lambda: open_model("openai:gpt-5", base_url="http://x/v1?a=1", key="k", environ={}), "query"),
    ("settings as a dict", lambda: made(settings={"temperature": 1}), "`settings` takes ModelSettings"),
    ("a temperature that is a word", lambda: ModelSettings(temperature="hot"), "must be a number"),  # type: ignore[arg-type]
    ("an unknown effort", lambda: ModelSettings(effort="huge"), "must be one of 'off'"),  # type: ignore[arg-type]
    ("stop as one text", lambda: ModelSettings(stop="END"), "Put it into a tuple"),  # type: ignore[arg-type]
    ("headers in settings", lambda: ModelSettings(extra=(Extra("gemini", "{}", (("k", "v"),)),)), "Set headers with"),
    (
        "a choice of a tool that the harness does not have",
        lambda: made(settings=ModelSettings(tool_choice="py")),
        "names the tool 'py'",
    ),
    ("settings of a run as text", lambda: asked("go", settings="hot"), "`settings` takes ModelSettings"),
    ("metadata that is not a mapping", lambda: asked("go", metadata=7), "`metadata` takes a mapping"),
    ("tools as one text", lambda: made(tools="pay"), "`tools` takes a list"),
    ("a tool that is a number", lambda: made(tools=[3]), "`tools` takes a list of tools or functions"),
    ("two tools with one name", twice, "Two tools are named 'pay'"),
    ("a tool without types", untyped, "has no type. Annotate it"),
    ("a tool with *args", starred, "Use a list"),
    ("an empty docstring", silent, "has an empty description"),
    ("a builtin with positional arguments", lambda: tool(len, description="Measure."), "positional only"),
    ("a tool of a class", lambda: tool(int), "is a class"),
    ("an unknown effect of a tool", lambda: tool(pay.function, effect="reed"), "must be one of"),  # type: ignore[call-overload]
    ("a timeout of 0", lambda: tool(pay.function, timeout=0), "must be above 0 seconds"),
    ("negative retries", lambda: tool(pay.function, retries=-1), "must be at least 0"),
    ("a schema of arguments that are not an object", lambda: Tool.of("a", SCHEMA, function=lambda x: x), "are an object"),
    ("a tool called final_result", lambda: made(tools=[tool(pay.function, name="final_result")]), "Rename the tool"),
    ("a store that is a number", lambda: made(store=3), "`store` takes a path"),
    ("limits as a dict", lambda: made(limits={"cost": 1}), "`limits` takes Limits"),
    ("a cost that is a word", lambda: Limits(cost="cheap"), "Limits.cost must be US dollars"),
    ("a cost of 0", lambda: Limits(cost=Decimal(0)), "must be more than 0"),
    ("a cost that is True", lambda: Limits(cost=True), "Limits.cost must be US dollars"),
    ("negative requests", lambda: Limits(requests=-1), "Limits.requests must be more than 0"),
    ("half a request", lambda: Limits(requests=1.5), "Limits.requests must be a whole number"),  # type: ignore[arg-type]
    ("retries that are a word", lambda: Limits(retries="two"), "Limits.retries must be a whole number"),  # type: ignore[arg-type]
    ("a warning above 100 %", lambda: Limits(warn_at=2), "warn_at above 0"),
    ("a policy as text", lambda: made(policy="ask"), "`policy` takes a Policy"),
    ("an unknown interrupt", lambda: made(interrupts=["tools"]), "`interrupts` takes a set of words"),
    ("a negative time to decide", lambda: made(decide_within=-1), "`decide_within` must be a number of seconds"),
    ("hooks that are functions", lambda: made(hooks=[print]), "`hooks` takes a list of Hook"),
    ("an async hook", lambda: Hook(event="before_tool_call", handler=asyncio.sleep), "is async"),  # type: ignore[arg-type]
    ("agents that are harnesses", lambda: made(agents=[made()]), "`agents` takes a list of Subagent"),
    ("two agents with one name", lambda: made(agents=[_agent(), _agent()]), "Two agents are named 'kid'"),
    ("an agent that inherits an unknown tool", lambda: made(agents=[_agent("look")]), "cannot inherit 'look'"),
    ("a scratchpad as text", lambda: made(scratchpad="notes"), "`scratchpad` takes True"),
    ("paging as text", lambda: made(page_output="no"), "`page_output` takes True or False"),
    ("an unknown value of unknown_outcome", lambda: made(unknown_outcome="guess"), '`unknown_outcome` must be "tell" or "ask"'),
    ("an unknown loss", lambda: made(refuse_losses={"reasonning"}), "reasonning"),
    ("an empty prompt", lambda: asked(""), "The prompt is empty"),
    ("a prompt of blanks", lambda: asked("  \n"), "The prompt is empty"),
    ("a prompt that is a number", lambda: asked(3), "A prompt is a text, a Message, or a list of blocks"),
    (
        "a prompt that is a message of the assistant",
        lambda: asked(Message.assistant_text("hi")),
        "The prompt is a message of the role",
    ),
    ("an unknown thread", lambda: asked("go", thread="nowhere"), "nowhere"),
    ("a thread that is a number", lambda: made().thread(7), "`id` takes the id"),  # type: ignore[arg-type]
    ("a history of texts", lambda: made().thread(history=["hi"]), "`history` takes a list of Message"),  # type: ignore[list-item]
    ("resuming without an id", lambda: made().resume_sync(""), "There is no thread to resume"),
    ("a stream without an event loop", streamed, "needs a running event loop"),
    ("a decision that is True", lambda: decided({"a": True}), 'Write Decision("allow")'),
    ("decisions as a list", lambda: decided([Decision("allow")]), "`decisions` takes {key"),
    ("a decision about another approval", lambda: decided({"b": Decision("allow")}), "b"),
    ("an unknown verdict", lambda: Decision("yes"), "must be one of 'allow', 'reject'"),  # type: ignore[arg-type]
    ("a fan-out of one text", lambda: fanned("hi"), "takes several prompts"),
    ("a fan-out with a concurrency of 0", lambda: fanned(["a"], concurrency=0), "concurrency of 1 or more"),
    ("a fan-out with invalid limits", lambda: fanned(["a"], limits=3), "`limits` takes Limits"),
    ("an output that is a number", lambda: made(output=3), "3"),
    (
        "a schema without a function",
        lambda: run(ScriptedModel([]), tool_schemas=[{"name": "a"}], user_message="go"),
        "no function",
    ),
    ("an empty chain", lambda: Chain([]), "model"),
    ("blocks as text", lambda: Message("user", "hi"), "Use Message.user_text"),  # type: ignore[arg-type]
    ("an unknown role", lambda: Message("tool", (TextBlock("x"),)), "Unknown role"),  # type: ignore[arg-type]
    ("a transcript of texts", lambda: Transcript(["hi"]), "Message"),  # type: ignore[list-item]
    ("a negative reasoning budget", lambda: Reasoning(budget=-1), "at least 0"),
    ("an output token limit of 0", lambda: Settings(max_output_tokens=0), "at least 1"),
    ("a choice of names as text", lambda: Choice("named", "pay"), "Put it into a tuple"),  # type: ignore[arg-type]
    ("a schema that is not JSON", lambda: ToolSpec("a", schema="{"), "ToolSpec.schema"),
    ("progress above 1", in_context, "from 0 to 1"),
    ("a model as bytes", lambda: Harness(b"openai:gpt-5"), "not bytes"),  # type: ignore[arg-type]
    ("a system prompt that is a number", lambda: made(system=5), "`system` takes a text"),
    ("a function for the system prompt that takes nothing", lambda: made(system=lambda: "Be brief."), "a PromptContext"),
    ("a store at another kind of address", lambda: made(store="mysql://user:pass@host/db"), "An address with 'mysql:/'"),
    ("a store at an address of SQLite", lambda: made(store="sqlite:///evener.db"), 'Give a path, as in store="evener.db"'),
    (
        "a store at an address in words of PostgreSQL",
        lambda: made(store="password=hush host=db"),
        "An address with 'password='",
    ),
    ("a store with a null character", lambda: made(store="a\0b"), "no path of a store file"),
    ("a lease of 0", lambda: SqliteStore("evener.db", lease=0), "`lease` is a number of seconds"),
    ("an unknown effort of a harness", lambda: made(effort="huge"), "must be one of 'off'"),
    ("tools in a dict", lambda: made(tools={"pay": pay}), "`tools` takes a list"),
    ("interrupts that are generated, and wrong", lambda: made(interrupts=iter(["tols"])), "not the text 'tols'"),
    ("losses that are a number", lambda: made(refuse_losses=5), "takes a set of codes"),
    ("an output as the name of a type", lambda: made(output="Report"), "is no JSON Schema"),
    ("an agent without a name", lambda: Subagent(name="", harness=made(), description="Helps."), "needs a name"),
    ("an agent without a harness", lambda: Subagent(name="kid", harness="shop", description="x"), "takes the Harness"),  # type: ignore[arg-type]
    ("steering with an empty prompt", lambda: steered(" "), "nothing to steer"),
    ("a preview for a model that is a number", lambda: compiled(5), "`model` takes a model string"),
    ("a harness whose name is a number", lambda: find_harness(5), "takes module:attribute"),  # type: ignore[arg-type]
    ("progress that is a number", lambda: fanned(["a"], progress=5), "`progress` takes a function"),
    ("a provider without complete", lambda: Harness(Mute(), store="memory"), "needs a `complete`"),  # type: ignore[arg-type]
    ("a line of a script that is a call", lambda: scripted(ToolCall.of("a", "pay", {})), "calls(ToolCall.of(...))"),
    ("a tool made from a tool", lambda: tool(pay, name="refund"), "is a tool already"),
    ("a description that is a number", lambda: tool(pay.function, description=5), "must be a str"),  # type: ignore[call-overload]
    ("a timeout that is a word", lambda: tool(pay.function, timeout="5"), "`timeout` of the tool 'pay'"),  # type: ignore[call-overload]
    ("half a retry", lambda: tool(pay.function, retries=1.5), "must be a whole number"),  # type: ignore[call-overload]
    ("an approval that is a word", lambda: tool(pay.function, approval="no"), "must be bool"),  # type: ignore[call-overload]
    ("metadata of a tool as a list", lambda: tool(pay.function, metadata=[1]), "takes a mapping"),  # type: ignore[call-overload]
    ("a verify with other arguments", lambda: tool(pay.function, verify=lambda item: item), "the same arguments"),
    ("keys that are not texts", mapped, "Use a list of pairs"),
    ("a model whose name is a number", lambda: open_model(5), "`name` takes a text"),  # type: ignore[arg-type]
    ("a key that is a number", lambda: opened(key=5), "`key` takes a text"),
    ("a base_url without a scheme", lambda: opened(base_url="localhost:8000"), "must begin with http://"),
    ("retries of requests as a number", lambda: opened(retries=3), "`retries` takes Retries(...)"),
    ("deadlines as a number", lambda: opened(deadlines=30), "`deadlines` takes Deadlines(...)"),
    ("a rate as a number", lambda: opened(rate=60), "`rate` takes Rate(...)"),
    ("credentials as text", lambda: opened(auth="Bearer k"), "`auth` takes a function"),
    ("an unknown encoding", lambda: opened(encoding="yaml"), "`encoding` must be one of 'native'"),
]


def _agent(*inherits: str) -> Subagent:
    return Subagent(name="kid", harness=made(), description="Helps.", inherits=inherits)


def test_there_are_sixty() -> None:
    assert len(MISTAKES) >= 60
    assert len({name for name, _, _ in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize(("make", "told"), [pytest.param(make, told, id=name) for name, make, told in MISTAKES])
def test_a_mistake_is_told_when_it_is_made(make: Callable[[], object], told: str) -> None:
    with pytest.raises(EvenerError) as caught:
        make()
    message = str(caught.value)
    assert told in message
    assert message.endswith((".", "?", ")")), message


def test_the_table_has_the_message_of_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mistakes.md").read_text("utf-8")
    for name, make, _ in MISTAKES:
        with pytest.raises(EvenerError) as caught:
            make()
        told = re.sub(r"\b[0-9a-f]{32}\b", "ID", " ".join(str(caught.value).split())).replace("|", "\\|")
        assert f"| {name} | `{type(caught.value).__name__}` | {told} |" in page, f"{name}: run `make docs`"
