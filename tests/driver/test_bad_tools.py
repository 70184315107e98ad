"""Whatever a tool does, it ends as a clear result, and the run goes on to its answer (S0.48, S0.54, S1.20, S2.25-S2.35)."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evener import ToolContext, tool
from evener import events as ev
from evener.harness import Harness
from evener.result import CallRecord, RunResult
from evener.store.memory import MemoryStore
from evener.store.sqlite.store import SqliteStore
from evener.testing.scripted_model import Line, ScriptedModel, calls, says
from evener.tools.tool import Tool
from evener.transcript.ask import Ask
from evener.transcript.blocks import TextBlock, ToolCall, ToolResult
from tests.driver.stage import others, settled
from tests.model.stage import nothing_left

SECRET = "sk-do-not-show-" + "7" * 24
HUGE = 50 * 1024 * 1024
FINAL = "that is all"


@tool(effect="read")
def fine(x: int) -> int:
    """Works."""
    return x


def scripted(bad: Tool, arguments: dict[str, object]) -> ScriptedModel:
    """Calls the bad tool and, in the same turn and after it, a good one; then answers."""
    first = calls(ToolCall.of("c1", bad.name, arguments), ToolCall.of("c2", "fine", {"x": 2}))
    return ScriptedModel([first, calls(ToolCall.of("c3", "fine", {"x": 3})), FINAL])


def ran(bad: Tool, arguments: dict[str, object] | None = None, **settings: object) -> tuple[RunResult, ScriptedModel]:
    """The run with this tool: it came to its answer, and the good tool's results are untouched."""
    model = scripted(bad, arguments or {})
    harness = Harness(model, tools=[bad, fine], **{"store": "memory", **settings})  # type: ignore[arg-type]

    async def go() -> RunResult:
        async with asyncio.timeout(120):
            result = await harness.run("go")
        assert await settled(lambda: not others()), "a task was left behind"
        return result

    with nothing_left():
        result = asyncio.run(go())
    assert (result.text, result.stop) == (FINAL, "done")
    assert [shown(record) for record in result.records[1:]] == ["2", "3"]
    return result, model


def shown(record: CallRecord) -> str:
    assert record.result is not None
    return "\n".join(block.text for block in record.result.content if isinstance(block, TextBlock))


def results(ask: Ask) -> list[ToolResult]:
    return [block for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)]


# Tools that fail, in every way there is.


def raises() -> str:
    """Raise."""
    raise ValueError("broken")


async def raises_on_the_loop() -> str:
    """Raise."""
    raise ValueError("broken")


def exits() -> str:
    """Exit."""
    raise SystemExit(3)


async def exits_on_the_loop() -> str:
    """Exit."""
    raise SystemExit(3)


def interrupts() -> str:
    """Raise what Ctrl-C raises."""
    raise KeyboardInterrupt


def speechless() -> str:
    """Raise something that cannot be read."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    raise Mute


def several() -> str:
    """Raise a group."""
    raise ExceptionGroup("all of it", [ValueError("one"), KeyError("two")])


def chatty() -> str:
    """Raise with far too many words."""
    raise ValueError("x" * 10_000_000)


async def cancels_itself() -> str:
    """Cancel the task it runs in."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)
    return "never"


def gives_an_object() -> object:
    """Return what has no JSON form."""
    return object()


def gives_no_number() -> object:
    """Return what JSON has not."""
    return {"x": float("nan")}


def gives_a_circle() -> object:
    """Return a list that holds itself."""
    circle: list[object] = []
    circle.append(circle)
    return circle


def gives_a_generator() -> object:
    """Return what has not happened yet."""
    return (number for number in range(3))


async def gives_a_coroutine() -> object:
    """Return what somebody else would have to await."""
    return asyncio.sleep(0)


def gives_bytes() -> object:
    """Return bytes of no kind."""
    return b"\x00\xff\xfe"


FAILING: list[tuple[Callable[..., object], str]] = [
    (raises, "failed with ValueError: broken"),
    (raises_on_the_loop, "failed with ValueError: broken"),
    (exits, "failed with SystemExit: 3"),
    (exits_on_the_loop, "failed with SystemExit: 3"),
    (interrupts, "failed with KeyboardInterrupt"),
    (speechless, "its message cannot be read"),
    (several, "ValueError: one"),
    (chatty, "failed with ValueError: xxx"),
    (cancels_itself, "it cancelled itself"),
    (gives_an_object, "cannot be shown"),
    (gives_no_number, "NaN"),
    (gives_a_circle, "cannot be shown"),
    (gives_a_generator, "has not run yet"),
    (gives_a_coroutine, "has not run yet"),
    (gives_bytes, "neither text nor a known kind"),
]


@pytest.mark.parametrize(("function", "said"), FAILING, ids=[function.__name__ for function, _ in FAILING])
def test_a_tool_that_fails_is_a_result(function: Callable[..., object], said: str) -> None:
    """S0.48, S2.32."""
    result, model = ran(tool(function))
    record = result.records[0]
    assert not record.ok
    assert said in shown(record)
    assert len(shown(record)) < 5_000
    assert "Traceback" not in shown(record)
    told = results(model.asks[1])
    assert [one.call_id for one in told] == ["c1", "c2"]
    assert told[0].is_error


def test_a_sync_function_that_gives_a_coroutine_is_awaited() -> None:
    async def later() -> str:
        return "at last"

    def lazy() -> object:
        return later()

    result, _ = ran(tool(lazy, description="Give a coroutine."))
    assert shown(result.records[0]) == "at last"


def test_a_tool_that_spawns_threads_ends_when_it_returns() -> None:
    release = threading.Event()
    spawned: list[threading.Thread] = []

    def spawn() -> str:
        """Leave threads behind."""
        spawned.extend(threading.Thread(target=release.wait, daemon=True) for _ in range(5))
        for thread in spawned:
            thread.start()
        return "spawned"

    try:
        assert shown(ran(tool(spawn))[0].records[0]) == "spawned"
    finally:
        release.set()
        for thread in spawned:
            thread.join(120)


def test_an_interrupt_on_the_loop_ends_the_program_as_ctrl_c_does_and_the_run_resumes() -> None:
    """On the loop's own thread it cannot be told from the user's, who must be able to stop us."""
    once = [KeyboardInterrupt()]

    async def pay() -> str:
        """Raise what Ctrl-C raises."""
        raise once.pop()

    bad = tool(pay)
    store = MemoryStore()
    model = ScriptedModel(lambda ask: calls(ToolCall.of("c1", "pay", {})) if len(ask.transcript) == 1 else says(FINAL))
    harness = Harness(model, tools=[bad], store=store)
    with pytest.raises(KeyboardInterrupt):
        harness.run_sync("go")
    [summary] = asyncio.run(_logs(store))
    result = harness.resume_sync(summary)
    assert result.text == FINAL
    assert result.records[0].result is not None
    assert result.records[0].result.outcome == "unknown"


async def _logs(store: MemoryStore) -> list[str]:
    return [summary.log for summary in await store.logs()]


# Tools that hang.


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened after the test, so that no thread hangs for ever."""
    opened = threading.Event()
    yield opened
    opened.set()


@pytest.mark.parametrize(
    ("effect", "outcome", "said"),
    [("read", "failed", "It may be called again"), ("write", "unknown", "It is not known whether it took effect")],
)
@pytest.mark.parametrize("awaits", [False, True], ids=["in a thread", "on the loop"])
def test_a_tool_that_hangs_is_given_up(effect: str, outcome: str, said: str, awaits: bool, gate: threading.Event) -> None:
    def hang() -> str:
        """Hang."""
        gate.wait(120)
        return "late"

    async def hang_on_the_loop() -> str:
        """Hang."""
        await asyncio.sleep(60)
        return "late"

    bad = tool(hang_on_the_loop if awaits else hang, name="hang", effect=effect, timeout=1.0)  # type: ignore[call-overload]
    result, _ = ran(bad)
    record = result.records[0]
    assert record.result is not None
    assert record.result.outcome == outcome
    assert said in shown(record)
    assert record.starts == 1


def test_a_tool_that_ignores_cancellation_is_counted(gate: threading.Event) -> None:
    @tool(effect="read", timeout=1.0)
    def hang() -> str:
        """Hang."""
        gate.wait(120)
        return "late"

    model = scripted(hang, {})
    harness = Harness(model, tools=[hang, fine], store="memory")

    async def go() -> None:
        assert (await harness.run("go")).text == FINAL
        assert (harness.tool_threads.busy, harness.tool_threads.abandoned) == (1, 1)
        gate.set()
        assert await settled(lambda: harness.tool_threads.busy == harness.tool_threads.abandoned == 0)

    asyncio.run(go())


# Tools that say too much.


def paged(ask: Ask) -> Line:
    """Calls the tool, then pages to the end of what it returned, then answers with the last page."""
    told = results(ask)
    if not told:
        return calls(ToolCall.of("c1", "dump", {}))
    if len(told) == 1:
        id = told[0].text.partition('read_output(id="')[2].partition('"')[0]
        return calls(ToolCall.of("c2", "read_output", {"id": id, "offset": HUGE - 10, "limit": 100}))
    return says(told[1].text)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_fifty_megabytes_are_paged_and_not_in_the_log(kind: str, tmp_path: Path) -> None:
    """S0.54."""

    @tool(effect="read")
    def dump() -> str:
        """Return far too much."""
        return "x" * (HUGE - 7) + "the end"

    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "store.db")

    async def go() -> None:
        harness = Harness(ScriptedModel(paged), tools=[dump], store=store)
        result = await harness.run("go")
        assert result.text.startswith("xxxthe end\n[Characters")
        assert "This is the end" in result.text
        assert len(shown(result.records[0])) < 51_000
        events = await store.read(result.thread)
        assert sum(len(ev.encode_event(event)) for event in events) < 200_000
        await store.aclose()

    asyncio.run(go())


def test_fifty_megabytes_of_bytes_are_a_clear_failure() -> None:
    def dump() -> bytes:
        return b"\x89PNG\r\n\x1a\n" + bytes(HUGE)

    result, _ = ran(tool(dump, description="Return a huge image."))
    assert "cannot be shown" in shown(result.records[0])
    assert "make it smaller" in shown(result.records[0])


def test_what_a_tool_prints_goes_nowhere_but_where_it_was_printed(capfd: pytest.CaptureFixture[str]) -> None:
    @tool(effect="read")
    def prints() -> str:
        """Print a secret."""
        print(SECRET)
        return "printed"

    store = MemoryStore()
    result, model = ran(prints, store=store)
    assert SECRET in capfd.readouterr().out
    log = b"".join(ev.encode_events(asyncio.run(store.read(result.thread)))).decode()
    assert SECRET not in log + str(result) + str(model.asks[-1].transcript)


def test_a_tool_that_changes_its_arguments_changes_nothing_else() -> None:
    @tool
    def mutate(names: list[str], more: dict[str, int]) -> str:
        """Change what it was given."""
        names.clear()
        more["x"] = 99
        return "changed"

    given: dict[str, object] = {"names": ["a", "b"], "more": {"x": 1}}
    store = MemoryStore()
    result, model = ran(mutate, given, store=store)
    assert shown(result.records[0]) == "changed"
    assert result.records[0].call.args == given
    made = [block for message in model.asks[-1].transcript for block in message.blocks if isinstance(block, ToolCall)]
    assert made[0].args == given
    replied = next(event for event in asyncio.run(store.read(result.thread)) if isinstance(event, ev.Replied))
    assert replied.message.calls[0].args == given


@pytest.mark.parametrize("awaits", [False, True])
def test_a_tool_that_keeps_its_context_speaks_to_nobody_when_its_call_is_over(awaits: bool) -> None:
    kept: list[ToolContext[object]] = []

    def keep(context: ToolContext[object]) -> str:
        """Keep the context."""
        kept.append(context)
        return "kept"

    async def keep_on_the_loop(context: ToolContext[object]) -> str:
        """Keep the context."""
        return keep(context)

    result, _ = ran(tool(keep_on_the_loop if awaits else keep, name="keep"))
    kept[0].progress("still here")
    assert result.ok
