"""Runs of many kinds, recorded by a real harness on a real SQLite file. A kind takes a seed: the same one, the same story."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from random import Random

import msgspec

from evener import Harness, Limits, Tool, tool
from evener import events as ev
from evener.errors import ApprovalStale, AuthFailed, EvenerError, Overloaded, TruncatedStream
from evener.harness.approvals import Decision
from evener.harness.harness import Subagent
from evener.hooks import AddContext, Cancel, Hook, Moment
from evener.policy.rules import Defaults, Policy, Rule
from evener.store.protocol import Store
from evener.store.sqlite.store import SqliteStore
from evener.testing.scripted_model import ScriptedModel, calls, says
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall
from evener.transcript.reply import Reply

__all__ = ["KINDS", "Recording", "recorded"]


class Recording(msgspec.Struct, frozen=True):
    """What a log holds, and who made it. `others` are the other logs of its store: branches, and runs inside of it."""

    events: tuple[ev.Event, ...]
    log: str
    harness: Harness
    others: tuple[tuple[str, tuple[ev.Event, ...]], ...] = ()


Kind = Callable[[Random, Store], Awaitable[tuple[str, Harness]]]
KINDS: dict[str, Kind] = {}


def kind(made: Kind) -> Kind:
    KINDS[made.__name__] = made
    return made


async def recorded(name: str, seed: int, folder: Path) -> Recording:
    """One recording of that kind."""
    async with _store(folder / f"{name}-{seed}.db") as store:
        log, harness = await KINDS[name](Random(f"{name} {seed}"), store)
        names = [summary.log for summary in await store.logs() if summary.log != log]
        others = [(name, tuple(await store.read(name))) for name in names]
        return Recording(tuple(await store.read(log)), log, harness, tuple(others))


@asynccontextmanager
async def _store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    try:
        yield store
    finally:
        await store.aclose()


# Tools and scripts.


def tools(random: Random, *, approval: bool = False) -> list[Tool]:
    """Three tools of the three effects, that take their time."""
    waits = {name: random.random() * 0.004 for name in "abcdef"}

    @tool(effect="read")
    async def look(x: str) -> str:
        """Look something up."""
        await asyncio.sleep(waits.get(x, 0.0))
        return f"saw {x}"

    @tool(effect="idempotent")
    async def book(x: str) -> str:
        """Book it."""
        await asyncio.sleep(waits.get(x, 0.0))
        return f"booked {x}"

    @tool(effect="write", approval=approval)
    async def pay(x: str) -> str:
        """Pay for it."""
        await asyncio.sleep(waits.get(x, 0.0))
        if x == "f":
            raise ValueError("no money")
        return f"paid {x}"

    return [look, book, pay]


def batch(random: Random, number: int, *, most: int = 4, names: str = "look book pay") -> Reply:
    """A turn with some calls."""
    made = [
        ToolCall.of(f"c{number}-{place}", random.choice(names.split()), {"x": random.choice("abcdef")})
        for place in range(random.randint(1, most))
    ]
    return calls(*made, text=random.choice(("", "Let me see.")))


def script(random: Random, turns: int, **about: object) -> list[Reply | str | EvenerError]:
    return [*(batch(random, number, **about) for number in range(turns)), "That is all."]  # type: ignore[arg-type]


def harness(random: Random, store: Store, lines: object, **settings: object) -> Harness:
    model = lines if isinstance(lines, ScriptedModel | list) and not _is_script(lines) else ScriptedModel(lines)  # type: ignore[arg-type]
    return Harness(model, **{"tools": tools(random), "store": store, **settings})  # type: ignore[arg-type]


def _is_script(lines: object) -> bool:
    return isinstance(lines, list) and not all(isinstance(one, ScriptedModel) for one in lines)


# Kinds.


@kind
async def plain(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, [random.choice(("hello", "hi", ""))], system="Be brief.", name="plain")
    return (await one.run("hi")).thread, one


@kind
async def working(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, script(random, 4))
    return (await one.run("go")).thread, one


@kind
async def several_runs(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, [*script(random, 2), *script(random, 1), "x"], system="Be brief.")
    thread = one.thread()
    for text in ("a", "b", "c"):
        await thread.run(text)
    return thread.id, one


@kind
async def one_by_one(random: Random, store: Store) -> tuple[str, Harness]:
    @tool(sequential=True)
    async def write(x: str) -> str:
        """Write it."""
        return x

    one = harness(random, store, script(random, 3, names="write look"), tools=[*tools(random), write])
    return (await one.run("go")).thread, one


@kind
async def streamed(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, [batch(random, 0), TruncatedStream("cut"), batch(random, 1), "done"], limits=Limits(retries=1))
    return await _steered(one, random, now=False), one


@kind
async def steered_at_once(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, lambda ask: batch(random, len(ask.transcript)) if len(ask.transcript) < 8 else "done")
    return await _steered(one, random, now=True), one


async def _steered(one: Harness, random: Random, *, now: bool) -> str:
    stream = one.stream("go")
    said = 0
    async for _ in stream:
        if said < 3 and random.random() < 0.4:
            said += 1
            await stream.steer(f"word {said}", now=now)
    return (await stream.result()).thread


@kind
async def cancelled(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, script(random, 4))
    stream = one.stream("go")
    seen, stop_at = 0, random.randint(2, 14)
    async for _ in stream:
        seen += 1
        if seen == stop_at:
            await stream.cancel("enough")
    result = await stream.result()
    if result.stop == "cancelled":
        await one.resume(result.thread)
    return result.thread, one


@kind
async def given_up(random: Random, store: Store) -> tuple[str, Harness]:
    """Not said to the log: whoever held it went away in the middle. Another one goes on."""
    one = harness(random, store, lambda ask: batch(random, len(ask.transcript)) if len(ask.transcript) < 9 else "done")
    thread = one.thread()
    for attempt in range(4):
        stream = thread.stream("go") if not attempt else thread.resume_stream()
        seen, stop_at = 0, random.randint(1, 9)
        async for _ in stream:
            seen += 1
            if seen == stop_at:
                await stream.aclose()
        with suppress(BaseException):
            await stream.result()
        state = await thread.state()
        if not state.run or state.finished is not None:
            break
    state = await thread.state()
    await (thread.run("again") if not state.run or state.finished else thread.resume())
    return thread.id, one


@kind
async def at_a_limit(random: Random, store: Store) -> tuple[str, Harness]:
    limits = random.choice(
        (Limits(requests=3), Limits(tool_calls=4), Limits(requests=4, warn_at=0.5), Limits(output_tokens=14))
    )
    one = harness(random, store, lambda ask: batch(random, len(ask.transcript)), limits=limits)
    result = await one.run("go")
    for _ in range(2):
        await one.resume(result.thread)
    return result.thread, one


@kind
async def dear(random: Random, store: Store) -> tuple[str, Harness]:
    model = ScriptedModel(lambda ask: batch(random, len(ask.transcript)), price=Decimal("0.3"))
    one = harness(random, store, model, limits=Limits(cost=Decimal("1.0")))
    return (await one.run("go")).thread, one


@kind
async def out_of_time(random: Random, store: Store) -> tuple[str, Harness]:
    class Slow(ScriptedModel):
        def stream(self, ask: Ask, *, after: object = None) -> object:  # type: ignore[override]
            made = super().stream(ask, after=after)
            if len(self.asks) > 1:
                made.read = _never  # type: ignore[assignment, method-assign]
            return made

    one = harness(random, store, Slow([batch(random, 0), "never"]), limits=Limits(seconds=1.0))
    return (await one.run("go")).thread, one


async def _never() -> list[object]:
    await asyncio.Event().wait()
    return []


@kind
async def failing(random: Random, store: Store) -> tuple[str, Harness]:
    """Failures that are tried again, and the next model of the chain."""
    first = ScriptedModel([batch(random, 0), *(Overloaded("busy", retry_after=0.001) for _ in range(3))], name="first:model")
    second = ScriptedModel([batch(random, 1), AuthFailed("no"), "x"], name="second:model")
    third = ScriptedModel(lambda _: batch(random, 2) if random.random() < 0.5 else "done", name="third:model")
    one = harness(random, store, [first, second, third])
    return (await one.run("go")).thread, one


@kind
async def failing_at_a_limit(random: Random, store: Store) -> tuple[str, Harness]:
    """A failure that would have been tried again, had there been room for it; in the first run, and in a later one."""
    one = harness(random, store, [Overloaded("busy", retry_after=0.001)] * 2, limits=Limits(requests=1))
    thread = one.thread()
    for _ in range(2):
        assert (await thread.run("go")).stop == "limit"
    return thread.id, one


@kind
async def failing_before_a_question(random: Random, store: Store) -> tuple[str, Harness]:
    """The same, where somebody is asked instead."""
    lines = [Overloaded("busy", retry_after=0.001)] * 2
    one = harness(random, store, lines, limits=Limits(requests=1), interrupts=("limit",))
    result = await one.run("go")
    assert result.stop == "approval"
    return result.thread, one


@kind
async def failed(random: Random, store: Store) -> tuple[str, Harness]:
    lines = [batch(random, 0), AuthFailed("no key", status=401), "done", "more"]
    one = harness(random, store, lines, limits=Limits(retries=random.randint(0, 1)))
    thread = one.thread()
    with suppress(AuthFailed):
        await thread.run("go")
    await thread.resume()
    return thread.id, one


@kind
async def another_model(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, script(random, 2))
    thread = (await one.run("go")).thread
    other = one.with_model(ScriptedModel([batch(random, 7), "there"], name="other:model"))
    await other.run("and now", thread=thread)
    return thread, one


@kind
async def routed(random: Random, store: Store) -> tuple[str, Harness]:
    """A router that rolls dice, failures, and a holder that went away."""
    failures = [
        Overloaded("busy", retry_after=0.001) if random.random() < 0.3 else batch(random, number) for number in range(9)
    ]
    models = [ScriptedModel([*failures, "done"], name="first:model"), ScriptedModel(script(random, 9), name="second:model")]
    one = harness(random, store, models, router=lambda request: random.choice(request.models), limits=Limits(requests=6))
    thread = one.thread()
    stream = thread.stream("go")
    seen, stop_at = 0, random.randint(1, 9)
    async for _ in stream:
        seen += 1
        if seen == stop_at:
            await stream.aclose()
    with suppress(BaseException):
        await stream.result()
    state = await thread.state()
    await (thread.run("again") if not state.run or state.finished else thread.resume())
    return thread.id, one


@kind
async def approved(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, script(random, 3), tools=tools(random, approval=True))
    result = await one.run("go")
    while result.stop == "approval":
        chosen = {key: _decision(random) for key in dict.fromkeys(one.key for one in result.approvals)}
        await one.decide(result.thread, chosen)
        result = await one.resume(result.thread)
    return result.thread, one


def _decision(random: Random) -> Decision:
    return random.choice(
        (Decision("allow"), Decision("reject", why="too dear"), Decision("reject"), Decision("allow", arguments={"x": "e"}))
    )


@kind
async def expired(random: Random, store: Store) -> tuple[str, Harness]:
    said = calls(ToolCall.of("c0", "pay", {"x": "a"}), ToolCall.of("c1", "look", {"x": "b"}))
    one = harness(random, store, [said, "done"], tools=tools(random, approval=True), decide_within=0.5)
    thread = (await one.run("go")).thread
    while True:
        await asyncio.sleep(0.5)
        await one.resume(thread)
        try:
            await one.decide(thread, {"c0": Decision("allow", by="me")})
        except ApprovalStale:  # so busy is the machine: it is asked once more
            continue
        return (await one.resume(thread)).thread, one


@kind
async def ruled(random: Random, store: Store) -> tuple[str, Harness]:
    rules = (
        Rule(tool="pay", verdict="deny", arguments={"x": "a"}, name="never a", reason="a is not for sale"),
        Rule(tool="pay", verdict="ask", name="ask first"),
        Rule(tool="look", verdict="allow", name="look around"),
    )
    policy = Policy(rules, Defaults.all("allow"))
    one = harness(random, store, script(random, 4), policy=policy)
    result = await one.run("go")
    while result.stop == "approval":
        await one.decide(result.thread, {key.key: _decision(random) for key in result.approvals})
        result = await one.resume(result.thread)
    return result.thread, one


@kind
async def asked_often(random: Random, store: Store) -> tuple[str, Harness]:
    """Before each step, at the limit, and about the answer."""
    lines = lambda ask: batch(random, len(ask.transcript)) if len(ask.transcript) < 6 else "done"  # noqa: E731
    one = harness(random, store, lines, interrupts=("step", "limit", "output"), limits=Limits(requests=2))
    result = await one.run("go")
    rejected = False
    while result.stop == "approval":
        (approval,) = result.approvals
        reject = approval.interrupt == "output" and not rejected
        rejected = rejected or reject
        await one.decide(result.thread, {approval.key: Decision("reject", why="shorter") if reject else Decision("allow")})
        result = await one.resume(result.thread)
    return result.thread, one


class Place(msgspec.Struct):
    """Where it is."""

    city: str
    people: int


@kind
async def structured(random: Random, store: Store) -> tuple[str, Harness]:
    lines = [batch(random, 0), '{"city": "Bonn"}', says('{"city": "Bonn", "people": 330000}')]
    one = harness(random, store, lines, output=Place, output_form="native")
    return (await one.run("where")).thread, one


@kind
async def final_result(random: Random, store: Store) -> tuple[str, Harness]:
    wrong = calls(ToolCall.of("f0", "final_result", {"city": "Bonn"}))
    right = calls(ToolCall.of("f1", "final_result", {"city": "Bonn", "people": 330000}))
    one = harness(random, store, [batch(random, 0), wrong, "text", right], output=Place, output_form="tool")
    return (await one.run("where")).thread, one


@kind
async def never_right(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, lambda _: "nowhere", output=Place, output_form="native", limits=Limits(corrections=1))
    return (await one.run("where")).thread, one


@kind
async def repeating(random: Random, store: Store) -> tuple[str, Harness]:
    lines = lambda ask: calls(ToolCall.of(f"c{len(ask.transcript)}", "look", {"x": "a"}))  # noqa: E731
    return (await (one := harness(random, store, lines)).run("go")).thread, one


@kind
async def clumsy(random: Random, store: Store) -> tuple[str, Harness]:
    lines = lambda ask: calls(ToolCall.of(f"c{len(ask.transcript)}", "look", {"y": len(ask.transcript)}))  # noqa: E731
    return (await (one := harness(random, store, lines)).run("go")).thread, one


@kind
async def hooked(random: Random, store: Store) -> tuple[str, Harness]:
    def stop(moment: Moment) -> Cancel | None:
        return Cancel(random.choice(("", "not today"))) if moment.call and "a" in moment.call.raw else None

    hooks = [
        Hook(event="before_tool_call", handler=stop),
        Hook(event="user_prompt_submit", handler=lambda _: AddContext("It is Monday.")),
    ]
    one = harness(random, store, script(random, 4), hooks=hooks)
    return (await one.run("go")).thread, one


@kind
async def refused_prompt(random: Random, store: Store) -> tuple[str, Harness]:
    hooks = [Hook(event="user_prompt_submit", handler=lambda _: Cancel("no"))]
    return (await (one := harness(random, store, ["x"], hooks=hooks)).run("go")).thread, one


@kind
async def with_agents(random: Random, store: Store) -> tuple[str, Harness]:
    inner = harness(random, store, script(random, 2, names="look"), name="inner")
    agent = Subagent(name="scout", harness=inner, description="Looks around.")
    lines = [calls(ToolCall.of("s", "scout", {"task": "look"}), ToolCall.of("c", "look", {"x": "b"})), "done"]
    one = harness(random, store, lines, agents=[agent])
    return (await one.run("go")).thread, one


@kind
async def with_starving_agents(random: Random, store: Store) -> tuple[str, Harness]:
    """The run around them has no room left: for a request, for calls, for tokens, for money."""
    few = (Limits(requests=4), Limits(tool_calls=3), Limits(output_tokens=12), Limits(cost=Decimal("0.8")))
    inner = harness(random, store, ScriptedModel(lambda ask: batch(random, len(ask.transcript)), price=Decimal("0.2")))
    agents = [Subagent(name=name, harness=inner, description="Looks around.") for name in ("scout", "spy")]
    both = calls(*(ToolCall.of(one.name, one.name, {"task": "go"}) for one in agents))
    model = ScriptedModel([both, "done"], price=Decimal(0))
    one = harness(random, store, model, agents=agents, limits=random.choice(few))
    return (await one.run("go")).thread, one


@kind
async def with_waiting_agents(random: Random, store: Store) -> tuple[str, Harness]:
    lines = [calls(ToolCall.of("p", "pay", {"x": "a"})), "paid"]
    inner = harness(random, store, lines, tools=tools(random, approval=True), name="inner")
    agent = Subagent(name="buyer", harness=inner, description="Buys.")
    outer = [calls(ToolCall.of("s", "buyer", {"task": "buy"}), ToolCall.of("c", "look", {"x": "b"})), "done"]
    one = harness(random, store, outer, agents=[agent])
    result = await one.run("go")
    await one.decide(result.thread, {approval.key: Decision("allow") for approval in result.approvals})
    await one.resume(result.thread)
    return result.thread, one


@kind
async def told_before(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, script(random, 1))
    before = (await one.run("go")).transcript.messages
    thread = one.thread(history=before)
    one.models[0].asks.clear()  # type: ignore[attr-defined]
    await thread.run("again")
    return thread.id, one
