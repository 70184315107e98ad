"""The fake transport keeps the contract of the seam, and tells on those who do not."""

import asyncio
import subprocess
import sys

import pytest

from evener.errors import ConnectFailed, TruncatedStream, UsageError, WireError
from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transport.exchange import Request, Transport

REQUEST = Request("http://h/v1?key=sentinel", (), b"{}")


async def read_all(transport: Transport) -> list[bytes]:
    response = await transport.send(REQUEST)
    pieces = []
    while piece := await response.read():
        pieces.append(piece)
    assert await response.read() == b"", "the end stays the end"
    await response.aclose()
    return pieces


def test_answers_come_in_the_order_of_the_script_piece_by_piece() -> None:
    fake = FakeTransport([FakeAnswer((b"a", b"", b"b")), FakeAnswer()])
    assert [asyncio.run(read_all(fake)) for _ in range(2)] == [[b"a", b"b"], []]
    assert fake.requests == [REQUEST, REQUEST]
    fake.check()


def test_a_head_is_as_scripted_with_names_in_lower_case() -> None:
    response = asyncio.run(FakeTransport([FakeAnswer(status=529, headers={"Retry-After": "3"})]).send(REQUEST))
    assert (response.status, response.headers) == (529, {"retry-after": "3"})


def test_an_error_comes_before_the_head_or_after_some_pieces_and_stays() -> None:
    fake = FakeTransport([ConnectFailed("no"), WireError("no HTTP"), FakeAnswer((b"a", TruncatedStream("cut"), b"never"))])

    async def run() -> None:
        with pytest.raises(ConnectFailed, match="no"):
            await fake.send(REQUEST)
        with pytest.raises(WireError, match="no HTTP"):
            await fake.send(REQUEST)
        response = await fake.send(REQUEST)
        assert await response.read() == b"a"
        for _ in range(2):
            with pytest.raises(TruncatedStream, match="cut"):
                await response.read()
        await response.aclose()

    asyncio.run(run())
    fake.check()


def test_a_gate_holds_back_a_head_or_a_piece() -> None:
    async def run() -> None:
        head, piece = asyncio.Event(), asyncio.Event()
        fake = FakeTransport([head, FakeAnswer((b"a", piece, b"b"))])
        sending = asyncio.create_task(fake.send(REQUEST))
        assert not await settled(sending)
        head.set()
        response = await sending
        assert await response.read() == b"a"
        reading = asyncio.create_task(response.read())
        assert not await settled(reading)
        piece.set()
        assert await reading == b"b"
        await response.aclose()
        fake.check()

    asyncio.run(run())


async def settled(task: "asyncio.Task[object]") -> bool:
    """Whether a task ends without anyone doing anything more."""
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


def test_a_wait_at_a_gate_that_is_called_off_loses_nothing() -> None:
    async def run() -> None:
        gate = asyncio.Event()
        response = await FakeTransport([FakeAnswer((gate, b"a"))]).send(REQUEST)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await response.read()
        gate.set()
        assert await response.read() == b"a"

    asyncio.run(run())


def test_an_answer_that_nobody_closed_is_told() -> None:
    fake = FakeTransport([FakeAnswer(), FakeAnswer()])

    async def run() -> None:
        first, second = await fake.send(REQUEST), await fake.send(REQUEST)
        assert fake.open == 2
        await first.aclose()
        await first.aclose()
        assert fake.open == 1
        with pytest.raises(AssertionError, match="1 answers were not closed"):
            fake.check()
        await second.aclose()
        fake.check()

    asyncio.run(run())


def test_a_script_that_is_too_long_or_too_short_is_told() -> None:
    with pytest.raises(AssertionError, match="1 steps of the script were never reached"):
        FakeTransport([FakeAnswer()]).check()
    with pytest.raises(UsageError, match="POST http://h/v1 is request 1") as short:
        asyncio.run(FakeTransport().send(REQUEST))
    assert "sentinel" not in str(short.value)


def test_a_closed_answer_is_not_read() -> None:
    async def run() -> None:
        response = await FakeTransport([FakeAnswer((b"a",))]).send(REQUEST)
        await response.aclose()
        with pytest.raises(UsageError, match="was closed"):
            await response.read()

    asyncio.run(run())


def test_the_fake_is_light_to_import() -> None:
    script = "import sys, evener.testing.transports; print(*sorted({'asyncio', 'ssl', 'aiohttp', 'email'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
