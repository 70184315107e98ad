"""The rate limiter: never too much in any minute, first come first served, nothing leaked, any loop and thread."""

import asyncio
import threading

import pytest

from evener.errors import BadValue, TimedOut
from evener.transport.limiter import Limiter, Rate, limiter_for
from tests.patience import run_on_virtual_time, until


class Record:
    """When calls began, and how many were on at once."""

    def __init__(self) -> None:
        self.began: list[tuple[float, int]] = []
        self.active = self.most = 0

    async def call(self, limiter: Limiter, number: int, *, tokens: int = 0, lasts: float = 0.0) -> None:
        async with limiter.slot(tokens=tokens):
            self.began.append((asyncio.get_running_loop().time(), number))
            self.active += 1
            self.most = max(self.most, self.active)
            await asyncio.sleep(lasts)
            self.active -= 1


def run(rate: Rate, calls: int, *, tokens: int = 0, lasts: float = 0.0) -> Record:
    """So many calls at once, on a clock of their own, and what became of them."""
    record = Record()

    async def main() -> None:
        limiter = Limiter(rate, clock=asyncio.get_running_loop().time)
        async with asyncio.TaskGroup() as group:
            for number in range(calls):
                group.create_task(record.call(limiter, number, tokens=tokens, lasts=lasts))

    run_on_virtual_time(main())
    assert [number for _, number in record.began] == list(range(calls))  # in the order they came
    return record


def windows(record: Record, most: int) -> bool:
    times = [time for time, _ in record.began]
    return all(later - earlier >= 60 for earlier, later in zip(times, times[most:], strict=False))


def test_without_limits_all_go_at_once() -> None:
    assert run(Rate(), 50, lasts=0.01).most == 50


def test_only_so_many_at_once() -> None:
    assert run(Rate(concurrent=3), 12, lasts=0.01).most == 3


def test_only_so_many_requests_a_minute() -> None:
    record = run(Rate(requests_per_minute=5), 12)
    assert windows(record, 5)
    assert [moment for moment, _ in record.began] == [0.0] * 5 + [60.0] * 5 + [120.0] * 2


def test_only_so_many_tokens_a_minute() -> None:
    assert windows(run(Rate(tokens_per_minute=100), 7, tokens=30), 3)


def test_a_call_larger_than_the_rate_goes_alone_instead_of_never() -> None:
    assert len(run(Rate(tokens_per_minute=10), 3, tokens=30).began) == 3


@pytest.mark.parametrize(("settled", "waits"), [(10, False), (95, True)])
def test_tokens_are_settled_afterwards(settled: int, waits: bool) -> None:
    async def main() -> float:
        clock = asyncio.get_running_loop().time
        limiter = Limiter(Rate(tokens_per_minute=100), clock=clock)
        async with limiter.slot(tokens=50) as slot:
            slot.settle(settled)
        async with limiter.slot(tokens=40):
            return clock()

    assert run_on_virtual_time(main()) == (60.0 if waits else 0.0)


def test_a_slot_may_be_entered_again_and_both_calls_count() -> None:
    now = 0.0
    limiter = Limiter(Rate(tokens_per_minute=200), clock=lambda: now)

    async def main() -> None:
        nonlocal now
        slot = limiter.slot(tokens=100)
        async with slot:
            now = 40.0
        async with slot:
            slot.settle(10)
        with pytest.raises(TimedOut):
            await limiter.slot(tokens=150, within=0.0).enter()
        now = 61.0  # only the first call is past
        async with limiter.slot(tokens=150, within=0.0):
            now = 200.0
        async with limiter.slot(tokens=200, within=0.0):
            pass

    asyncio.run(main())


def test_a_slot_that_waits_in_vain_for_a_second_turn_gives_the_first_one_back() -> None:
    async def main() -> None:
        limiter = Limiter(Rate(concurrent=1))
        slot = await limiter.slot(within=0.0).enter()
        with pytest.raises(TimedOut):
            await slot.enter()
        slot.leave()
        async with limiter.slot(within=0.0):
            pass

    asyncio.run(main())


def test_a_pause_holds_all_new_calls_and_none_that_run() -> None:
    async def main() -> float:
        clock = asyncio.get_running_loop().time
        limiter = Limiter(Rate(concurrent=2), clock=clock)
        async with limiter.slot():
            limiter.pause(20)
            async with limiter.slot():
                return clock()

    assert run_on_virtual_time(main()) == 20.0


def test_waiting_has_an_end() -> None:
    limiter = Limiter(Rate(concurrent=1))

    async def main() -> None:
        async with limiter.slot():
            with pytest.raises(TimedOut, match=r"left no room for a call within 0\.05 seconds"):
                async with limiter.slot(within=0.05):
                    pass
        async with limiter.slot(within=0.05):
            pass

    asyncio.run(main())


def test_those_who_give_up_leak_nothing() -> None:
    limiter = Limiter(Rate(concurrent=2, requests_per_minute=10_000))

    async def main() -> None:
        async def hold(gate: asyncio.Event) -> None:
            async with limiter.slot():
                await gate.wait()

        for round_number in range(20):
            gate = asyncio.Event()
            tasks = [asyncio.create_task(hold(gate)) for _ in range(10)]
            await asyncio.sleep(0)
            for number, task in enumerate(tasks):
                if (number + round_number) % 3:
                    task.cancel()  # first ones that hold a slot, first ones that wait, and some between
            gate.set()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(120), limiter.slot(), limiter.slot():
            pass
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_threads_and_their_loops_share_one_limiter() -> None:
    limiter = limiter_for("a key of threads", Rate(concurrent=2))
    lock, active, most, done = threading.Lock(), 0, 0, 0

    def met() -> bool:
        """Another thread has come, too."""
        return most >= 2

    async def call() -> None:
        nonlocal active, most, done
        for _ in range(10):
            async with limiter.slot(within=120):
                with lock:
                    active += 1
                    most = max(most, active)
                await until(met)
                await asyncio.sleep(0.001)
                with lock:
                    active -= 1
                    done += 1

    threads = [threading.Thread(target=lambda: asyncio.run(call())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert (most, done) == (2, 60)


def test_a_loop_that_dies_while_it_waits_does_not_block_the_others() -> None:
    limiter = Limiter(Rate(concurrent=1))

    async def take() -> None:
        async with limiter.slot(within=120):
            pass

    async def main() -> None:
        async with limiter.slot():
            dead = asyncio.new_event_loop()
            waiting = take()

            def begin() -> None:
                task = dead.create_task(waiting)
                dead.call_later(0.05, dead.stop)
                dead.run_forever()
                task.get_coro()
                dead.close()

            await asyncio.to_thread(begin)
            behind = asyncio.create_task(take())
            await asyncio.sleep(0.01)
        await asyncio.wait_for(behind, 120)
        waiting.close()

    asyncio.run(main())


def test_one_key_has_one_limiter_and_limits_only_tighten() -> None:
    first = limiter_for("a key of its own", Rate(requests_per_minute=100, concurrent=5))
    again = limiter_for("a key of its own", Rate(requests_per_minute=50, tokens_per_minute=9))
    assert first is again
    assert first.rate == Rate(requests_per_minute=50, tokens_per_minute=9, concurrent=5)
    assert limiter_for("another key", Rate()) is not first


def test_a_negative_rate_is_refused() -> None:
    with pytest.raises(BadValue, match="cannot be negative"):
        Rate(concurrent=-1)
