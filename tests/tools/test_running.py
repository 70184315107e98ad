"""One call of a tool, good or bad, ends as one clear envelope. (S1.14, S1.30, S2.24, S2.29-S2.32)"""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pytest

from evener.tools import Envelope, ModelRetry, Progress, Threads, Tool, ToolContext, ToolOutput, tool, verify_call
from evener.transcript import ToolCall
from tests.patience import PATIENCE, at_some_pace, moment, wait_until
from tests.tools.calls import call, context, named, run

LETTER = contextvars.ContextVar("LETTER", default="?")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What hanging tools wait for; opened at the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


def settled(threads: Threads) -> None:
    """Wait until no thread is busy."""
    wait_until(lambda: not threads.busy)
    assert (threads.busy, threads.abandoned) == (0, 0)


@tool(effect="read")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read")
async def add_later(a: int, b: int = 1) -> int:
    """Add two numbers, later."""
    await asyncio.sleep(0)
    return a + b


@pytest.mark.parametrize("made", [add, add_later])
@pytest.mark.parametrize(
    ("raw", "ok", "retry", "said"),
    [
        ('{"a":2,"b":3}', True, False, "5"),
        ('{"a":2}', True, False, "3"),
        ('{"a":"2"}', False, True, "a: expected a whole number, found a string"),
        ('{"a":2,"c":3}', False, True, "c: unknown field"),
        ("{}", False, True, "a: required, but missing"),
        ('{"a":2', False, True, "not JSON"),
        ("[2]", False, True, "expected a JSON object, found [2]"),
        ("null", False, True, "expected a JSON object, found null"),
        ("", False, True, "empty; expected a JSON object"),
        ('{"a":NaN}', False, True, "a: not JSON: NaN and Infinity are not JSON"),
        ('{"a":1e999}', False, True, "not JSON: Number out of range"),
        ('{"a":1,"a":2}', False, True, "a: this key stands twice"),
        ('{"a":' + "[" * 100_000, False, True, "nested deeper"),
        ('{"a":' + "[" * 150 + "]" * 150 + "}", False, True, "nested deeper"),
        ('{"a":1}' + " " * (17 << 20), False, True, "are allowed"),
        ('{"a":' + "9" * 10_000 + "}", False, True, "not JSON"),
    ],
    ids=named,
)
def test_arguments_are_parsed_and_validated_before_anything_runs(
    made: Tool, raw: str, ok: bool, retry: bool, said: str
) -> None:
    """S1.20, S1.30, S2.29, S2.30: bad JSON, non-objects and validation errors are failed with retry."""
    envelope = run(call(made, raw))
    assert (envelope.ok, envelope.retry) == (ok, retry)
    assert said in envelope.text


def test_a_sync_tool_runs_in_a_daemon_thread_with_the_callers_context() -> None:
    """S2.24."""

    @tool
    def where() -> str:
        thread = threading.current_thread()
        return f"{thread is threading.main_thread()} {thread.daemon} {LETTER.get()}"

    async def work() -> Envelope:
        LETTER.set("x")
        return await call(where)

    assert run(work()).text == "False True x"


def test_an_async_tool_runs_on_the_loop() -> None:
    """S2.24."""

    @tool
    async def where() -> str:
        return str(threading.current_thread() is threading.main_thread())

    assert run(call(where)).text == "True"


@dataclass
class Deps:
    greeting: str


def test_a_tool_gets_its_context() -> None:
    @tool
    def greet(name: str, about: ToolContext[Deps]) -> str:
        return f"{about.deps.greeting} {name} {about.run_id} {about.call_id} {about.key} {(about.seconds_left or 0) > 50}"

    assert run(call(greet, '{"name":"Ann"}', within=context(Deps("Hi")))).text == "Hi Ann run-1 call-1 key-1 True"


def test_progress_arrives_on_the_loop_in_order_before_the_result() -> None:
    @tool
    def count(about: ToolContext[object]) -> str:
        for number in range(3):
            about.progress(f"step {number}", fraction=number / 2)
        return "done"

    heard: list[tuple[Progress, bool]] = []

    def hear(progress: Progress) -> None:
        heard.append((progress, threading.current_thread() is threading.main_thread()))

    async def work() -> int:
        await call(count, within=context(report=hear))
        return len(heard)

    assert run(work()) == 3
    assert heard == [(Progress("call-1", f"step {number}", number / 2), True) for number in range(3)]


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_progress_of_an_async_tool_arrives_before_the_result_as_well(rounds: int) -> None:
    @tool
    async def count(about: ToolContext[object]) -> str:
        for number in range(rounds):
            about.progress(f"step {number}")
            await asyncio.sleep(0)
        about.progress("last")
        return "done"

    heard: list[str] = []

    async def work() -> list[str]:
        await call(count, within=context(report=lambda progress: heard.append(progress.text)))
        return list(heard)

    assert run(work()) == [*(f"step {number}" for number in range(rounds)), "last"]


def test_an_async_tool_has_one_task_of_its_own_from_its_first_step_on() -> None:
    """What it begins with (a timeout, a task group, a cancel scope) is bound to the task that it ends in."""
    tasks: list[asyncio.Task[object] | None] = []

    @tool
    async def bounded() -> str:
        tasks.append(asyncio.current_task())
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(30)
        except TimeoutError:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
            tasks.append(asyncio.current_task())
            return "in time"
        return "late"

    async def work() -> str:
        tasks.append(asyncio.current_task())
        return (await call(bounded)).text

    assert run(work()) == "in time"
    assert tasks[0] is not tasks[1]
    assert tasks[1] is tasks[2]


def test_what_an_async_tool_sets_stays_with_it() -> None:
    @tool
    async def writes() -> str:
        LETTER.set("y")
        return LETTER.get()

    async def work() -> tuple[str, str]:
        LETTER.set("x")
        return (await call(writes)).text, LETTER.get()

    assert run(work()) == ("y", "x")


def test_a_fraction_beyond_the_whole_is_refused() -> None:
    @tool
    def wrong(about: ToolContext[object]) -> None:
        about.progress(fraction=2)

    assert "BadValue: The fraction" in run(call(wrong)).text


def test_a_raw_schema_gives_the_function_a_dict() -> None:
    """S2.21: JSON schema."""

    def look(args: dict[str, object], about: ToolContext[object]) -> object:
        return {**args, "key": about.key}

    schema = {"type": "object", "properties": {"max-size": {"type": "integer", "maximum": 5}}, "required": ["max-size"]}
    made = Tool.of("look", schema, function=look)
    assert run(call(made, '{"max-size":3}')).text == '{"max-size":3,"key":"key-1"}'
    assert "max-size: must be at most 5; found 6" in run(call(made, '{"max-size":6}')).text
    assert "other: unknown field" in run(call(made, '{"max-size":3,"other":1}')).text


def raises() -> None:
    raise ValueError("the key is sk-123")


def asks_again() -> None:
    raise ModelRetry("use a shorter name")


def exits() -> None:
    raise SystemExit(3)


def interrupts() -> None:
    raise KeyboardInterrupt


def recurses() -> None:
    recurses()


def returns_a_thing() -> object:
    return object()


def returns_bad_output() -> ToolOutput:
    return ToolOutput("x", {"y": float("nan")})


class Odd(BaseException):
    pass


def is_odd() -> None:
    raise Odd("base")


async def raises_later() -> None:
    raises()


async def exits_later() -> None:
    exits()


async def is_odd_later() -> None:
    is_odd()


async def cancels_itself() -> None:
    raise asyncio.CancelledError


async def yields() -> AsyncIterator[int]:
    yield 1


async def forgets_to_await() -> object:
    return add_later.function(a=1)


BAD: list[tuple[Callable[..., object], str, bool]] = [
    (raises, "failed with ValueError: the key is [secret]", False),
    (asks_again, "use a shorter name", True),
    (exits, "failed with SystemExit: 3", False),
    (interrupts, "failed with KeyboardInterrupt", False),
    (recurses, "failed with RecursionError", False),
    (returns_a_thing, "what it returned (object) cannot be shown", False),
    (returns_bad_output, "cannot be shown", False),
    (is_odd, "failed with Odd: base", False),
    (raises_later, "failed with ValueError: the key is [secret]", False),
    (exits_later, "failed with SystemExit: 3", False),
    (is_odd_later, "failed with Odd: base", False),
    (cancels_itself, "it cancelled itself", False),
    (yields, "has not run yet", False),
    (forgets_to_await, "has not run yet", False),
]


@pytest.mark.parametrize(("function", "said", "retry"), BAD, ids=named)
def test_a_bad_tool_ends_as_a_clear_result(function: Callable[..., object], said: str, retry: bool) -> None:
    """S0.48, S2.31, S2.32: the loop never crashes; only ModelRetry asks for another try."""
    threads = Threads(2)
    envelope = run(call(tool(function), threads=threads, scrub=lambda text: text.replace("sk-123", "[secret]")))
    assert (envelope.ok, envelope.retry, envelope.outcome) == (False, retry, "failed")
    assert said in envelope.text
    assert "Traceback" not in envelope.text
    settled(threads)


def test_arguments_are_made_afresh_so_a_tool_may_change_them() -> None:
    @tool
    def spoil(names: list[str]) -> str:
        names.append("spoilt")
        return ",".join(names)

    asked = ToolCall("call-1", "spoil", '{"names":["a"]}')
    assert run(call(spoil, asked.raw)).text == run(call(spoil, asked.raw)).text == "a,spoilt"
    assert asked.args == {"names": ["a"]}


def test_a_sync_tool_may_run_a_loop_of_its_own() -> None:
    @tool
    def nested() -> str:
        async def inner() -> str:
            await asyncio.sleep(0)
            return "inner"

        return asyncio.run(inner())

    assert run(call(nested)).text == "inner"


def test_a_sync_tool_may_call_back_into_the_loop_that_waits_for_it() -> None:
    async def work() -> Envelope:
        home = asyncio.get_running_loop()
        threads = Threads(1)

        @tool
        def back() -> str:
            return asyncio.run_coroutine_threadsafe(call(add_later, '{"a":1}', threads=threads), home).result(PATIENCE).text

        return await call(back, threads=threads)

    assert run(work()).text == "2"


def test_a_sync_function_that_gives_a_coroutine_is_awaited() -> None:
    @tool
    def wrapped(a: int) -> object:
        return add_later.function(a=a)

    assert run(call(wrapped, '{"a":4}')).text == "5"


@pytest.mark.parametrize(
    ("effect", "outcome", "said"),
    [
        ("read", "failed", "It may be called again."),
        ("idempotent", "failed", "It may be called again."),
        ("write", "unknown", "It is not known whether it took effect."),
    ],
)
def test_a_sync_tool_that_hangs_is_given_up_and_counted(effect: "str", outcome: str, said: str, gate: threading.Event) -> None:
    """A timed-out write is unknown, not failed. A thread that begins late, on a busy machine, would have done nothing."""
    pools: list[Threads] = []

    def hang() -> None:
        gate.wait(120)

    def attempt(pace: float) -> None:
        pools.append(threads := Threads(2))

        async def work() -> Envelope:
            envelope = await call(tool(hang, effect=effect, timeout=pace), threads=threads)  # type: ignore[call-overload]
            assert (threads.busy, threads.abandoned) == (1, 1)
            assert isinstance(envelope, Envelope)
            return envelope

        envelope = run(work())
        assert (envelope.ok, envelope.retry, envelope.outcome) == (False, False, outcome)
        assert said in envelope.text

    at_some_pace(attempt)
    gate.set()
    settled(pools[-1])


def test_an_async_tool_that_hangs_is_cancelled() -> None:
    cleaned: list[str] = []

    @tool(timeout=0.05)
    async def hang() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.append("yes")

    threads = Threads(1)
    envelope = run(call(hang, threads=threads))
    assert (envelope.outcome, cleaned, threads.stray) == ("unknown", ["yes"], 0)


def test_an_async_tool_that_ignores_cancellation_is_left_behind_and_counted() -> None:
    async def work() -> tuple[str, int, int]:
        free = asyncio.Event()

        @tool(timeout=0.02, effect="read")
        async def stubborn() -> str:
            while True:
                try:
                    await free.wait()
                    raise ValueError("late")
                except asyncio.CancelledError:
                    continue

        threads = Threads(1)
        envelope = await call(stubborn, threads=threads, grace=0.02)
        before = threads.stray
        free.set()
        for _ in range(100):
            await asyncio.sleep(0)
        return envelope.outcome, before, threads.stray

    assert run(work()) == ("failed", 1, 0)


def test_a_tool_is_told_when_it_is_given_up() -> None:
    def attempt(pace: float) -> None:
        seen: list[bool] = []

        @tool(timeout=pace, effect="read")
        def patient(about: ToolContext[object]) -> None:
            seen.append(about.cancelled.wait(120))
            about.progress("this is heard by none")

        heard: list[Progress] = []
        threads = Threads(1)

        async def work() -> bool:
            envelope = await call(patient, threads=threads, within=context(report=heard.append))
            while threads.busy:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0)
            return envelope.ok

        assert not run(work())
        assert (seen, heard) == ([True], [])

    at_some_pace(attempt)


def test_the_deadline_of_the_run_counts_as_well(gate: threading.Event) -> None:
    @tool(effect="read", timeout=None)
    def hang() -> None:
        gate.wait(120)

    def attempt(pace: float) -> None:
        within: ToolContext[object] = ToolContext(call_id="c", deps=None, deadline=moment(0.5 * pace))
        assert "was given up after" in run(call(hang, within=within)).text

    at_some_pace(attempt)


def test_without_any_time_left_nothing_is_begun() -> None:
    ran: list[int] = []

    @tool
    def mark() -> None:
        ran.append(1)

    within: ToolContext[object] = ToolContext(call_id="c", deps=None, deadline=moment(-1))
    envelope = run(call(mark, within=within))
    assert (envelope.outcome, ran) == ("failed", [])
    assert "there is no time left" in envelope.text


def test_the_dependencies_do_not_show() -> None:
    assert "secret" not in repr(context({"key": "secret"}))


def test_when_all_threads_hang_the_next_call_is_refused_at_once_and_async_tools_go_on(gate: threading.Event) -> None:
    pools: list[Threads] = []

    def attempt(pace: float) -> None:
        @tool(timeout=pace)
        def hang() -> None:
            gate.wait(120)

        pools.append(threads := Threads(2))

        async def work() -> list[Envelope]:
            await asyncio.gather(call(hang, threads=threads), call(hang, threads=threads))
            return [await call(add, '{"a":1}', threads=threads), await call(add_later, '{"a":1}', threads=threads)]

        refused, done = run(work())
        assert "was not run: all 2 threads for tools are held by calls that hang" in refused.text
        assert refused.outcome == "failed"
        assert done.text == "2"

    at_some_pace(attempt)
    gate.set()
    settled(pools[-1])
    assert run(call(add, '{"a":1}', threads=pools[-1])).text == "2"


def test_a_call_that_waits_for_a_thread_is_refused_when_the_last_one_hangs(gate: threading.Event) -> None:
    def attempt(pace: float) -> None:
        @tool(timeout=pace)
        def hang() -> None:
            gate.wait(120)

        ran: list[int] = []

        @tool(timeout=120)
        def mark() -> None:
            ran.append(1)

        async def work() -> tuple[Envelope, Envelope]:
            threads = Threads(1)
            return await asyncio.gather(call(hang, threads=threads), call(mark, threads=threads))

        assert "held by calls that hang" in run(work())[1].text
        assert ran == []

    at_some_pace(attempt)


def test_a_write_that_never_began_is_failed_and_not_unknown(gate: threading.Event) -> None:
    ran: list[int] = []

    @tool(timeout=120)
    def hold() -> str:
        gate.wait(120)
        return "held"

    @tool(timeout=0.05)
    def mark() -> None:
        ran.append(1)

    async def work() -> list[Envelope]:
        threads = Threads(1)
        first = asyncio.ensure_future(call(hold, threads=threads))
        await asyncio.sleep(0)
        second = await call(mark, threads=threads)
        gate.set()
        return [await first, second]

    held, never = run(work())
    assert held.text == "held"
    assert (never.outcome, ran) == ("failed", [])
    assert "no thread became free" in never.text


def test_more_calls_than_threads_all_come_to_their_turn() -> None:
    threads = Threads(3)
    seen: set[int] = set()

    @tool(effect="read")
    def twice(n: int) -> int:
        seen.add(threading.get_ident())
        return n * 2

    async def work() -> list[Envelope]:
        return await asyncio.gather(*(call(twice, f'{{"n":{n}}}', threads=threads) for n in range(100)))

    assert [envelope.text for envelope in run(work())] == [str(2 * n) for n in range(100)]
    assert len(seen) <= 3
    settled(threads)


def test_cancelling_a_call_cancels_a_sync_tool_as_far_as_that_goes(gate: threading.Event) -> None:
    begun = threading.Event()

    @tool
    def hang(about: ToolContext[object]) -> None:
        begun.set()
        about.cancelled.wait(120)
        gate.wait(120)

    threads = Threads(1)

    async def work() -> None:
        task = asyncio.ensure_future(call(hang, threads=threads))
        while not begun.is_set():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (threads.busy, threads.abandoned) == (1, 1)

    run(work())
    gate.set()
    settled(threads)


def test_cancelling_a_call_before_its_thread_begins_keeps_it_from_beginning(gate: threading.Event) -> None:
    ran: list[int] = []

    @tool
    def hold() -> None:
        gate.wait(120)

    @tool
    def mark() -> None:
        ran.append(1)

    threads = Threads(1)

    async def work() -> None:
        first = asyncio.ensure_future(call(hold, threads=threads))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(call(mark, threads=threads))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait((second,))
        gate.set()
        await first

    run(work())
    settled(threads)
    assert ran == []


def test_cancelled_anywhere_nothing_is_leaked() -> None:
    """Cancellation at each of the first awaits of a call: no thread, no task, no warning stays behind."""

    @tool
    def wrapped(a: int) -> object:
        return add_later.function(a=a)

    async def work(made: Tool, steps: int, threads: Threads) -> None:
        task = asyncio.ensure_future(call(made, '{"a":1}', threads=threads))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(asyncio.all_tasks()) <= 2

    for made in (add, add_later, wrapped):
        threads = Threads(1)
        for steps in range(12):
            run(work(made, steps, threads))
        settled(threads)
        assert threads.stray == 0


@pytest.mark.parametrize(("answer", "known"), [(True, True), (False, False), (None, None), ("yes", None)])
def test_after_a_crash_the_tool_itself_may_say_whether_it_took_effect(answer: object, known: bool | None) -> None:
    asked: list[object] = []

    def send(to: str) -> None: ...

    def sent(to: str, about: ToolContext[object]) -> object:
        asked.append((to, about.key))
        return answer

    made = tool(send, verify=sent)
    found = run(verify_call(made, ToolCall("c", "send", '{"to":"Ann"}'), context=context(), threads=Threads(1)))
    assert found is known
    assert asked == [("Ann", "key-1")]


def test_a_verify_that_fails_knows_nothing() -> None:
    def send() -> None: ...

    async def sent() -> bool:
        raise OSError

    asked = ToolCall("c", "send", "{}")
    assert run(verify_call(tool(send, verify=sent), asked, context=context(), threads=Threads(1))) is None
    assert run(verify_call(tool(send), asked, context=context(), threads=Threads(1))) is None


def test_arguments_that_cannot_be_made_never_took_effect() -> None:
    @dataclass
    class Touchy:
        x: int

        def __post_init__(self) -> None:
            raise OSError("touchy")

    def probe(it: object) -> None: ...

    def probed(it: object) -> bool:
        raise AssertionError(f"asked about {it}")

    probe.__annotations__["it"] = probed.__annotations__["it"] = Touchy
    asked = ToolCall("c", "probe", '{"it":{"x":1}}')
    assert run(verify_call(tool(probe, verify=probed), asked, context=context(), threads=Threads(1))) is False


def test_a_type_that_raises_when_it_is_made_is_a_result() -> None:
    @dataclass
    class Touchy:
        x: int

        def __post_init__(self) -> None:
            raise OSError("touchy") if self.x else ValueError("not zero")

    def probe(it: object) -> None: ...

    probe.__annotations__["it"] = Touchy
    broken = run(call(tool(probe), '{"it":{"x":1}}'))
    assert (broken.retry, "OSError: touchy" in broken.text) == (False, True)
    wrong = run(call(tool(probe), '{"it":{"x":0}}'))
    assert (wrong.retry, "it: not zero" in wrong.text) == (True, True)
