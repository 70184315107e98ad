"""What is left when nobody closes, when a loop ends, when a process splits: nothing, and nobody is told a secret on the way."""

import asyncio
import gc
import logging
import os
import threading
import warnings
from contextlib import suppress
from queue import Queue

import pytest

from evener.errors import EvenerError, UsageError
from evener.transport.exchange import Deadlines
from evener.transport.http import HttpTransport, read_all
from tests.patience import lull, until
from tests.transport.conftest import Certificates
from tests.transport.servers import CHUNKED, SECRET, Received, Served, chunk, post, raw, serving, whole
from tests.transport.test_tls_and_proxies import PASSWORD, proxying


@pytest.mark.parametrize("sent", [raw(whole()), raw(CHUNKED, chunk(b"x"), end="hang")], ids=["whole", "unfinished"])
@pytest.mark.parametrize("where", ["here", "in another thread"])
def test_an_answer_that_is_dropped_unread_gives_its_slot_back(sent: object, where: str) -> None:
    async def main() -> int:
        async with serving(sent) as served, HttpTransport(connections=1) as http:  # type: ignore[arg-type]
            for _ in range(10):
                dropped = [await http.send(post(served.url, Deadlines(connect=120, idle=120, total=120)))]
                if where == "here":
                    dropped.clear()
                else:
                    await asyncio.to_thread(dropped.clear)
            await lull()
            return served.open

    gc.collect()  # what other tests have dropped may warn, too
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        opened = asyncio.run(main())
        gc.collect()
    assert opened <= 1
    assert [str(warning.message) for warning in told] == []


def test_an_answer_whose_loop_has_ended_is_dropped_in_silence() -> None:
    http = HttpTransport()

    async def main() -> object:
        async with serving(raw(CHUNKED, chunk(b"x"), end="hang")) as served:
            return await http.send(post(served.url))

    dropped = asyncio.run(main())
    del dropped
    gc.collect()


def test_closed_while_others_send_and_read_a_transport_leaves_nothing() -> None:
    async def main() -> None:
        async with serving(raw(CHUNKED, chunk(b"x"), end="hang")) as served, serving(raw(end="hang")) as mute:
            http = HttpTransport(connections=3)
            response = await http.send(post(served.url))
            assert await response.read() == b"x"
            reading = asyncio.create_task(response.read())
            waiting = asyncio.create_task(http.send(post(mute.url)))
            dialling = asyncio.create_task(http.send(post(mute.url)))
            queueing = asyncio.create_task(http.send(post(mute.url)))
            await lull()
            await http.aclose()
            with pytest.raises(UsageError, match="transport was closed"):
                await reading
            with pytest.raises(UsageError, match="transport was closed"):
                await response.read()
            for task in (waiting, dialling, queueing):
                with pytest.raises(EvenerError, match="before it answered"):
                    await task
            await until(lambda: served.open + mute.open == 0)
            again = await http.send(post(served.url))  # it can be used again
            assert await again.read() == b"x"
            await http.aclose()

    asyncio.run(main())
    gc.collect()


UNASKED = {
    "an answer": whole(b"unasked"),
    "a farewell": whole(b"", 408, "connection: close"),
    "junk": b"\x15\x03\x01",
    "an end": b"",
}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("unasked", UNASKED)
def test_what_came_while_the_loop_was_busy_is_no_answer(unasked: str, secure: bool, certificates: Certificates) -> None:
    """A tool that computes holds the loop up: it has not told of what came before the next request was sent."""
    context = certificates.server if secure else None
    port, sent, over = Queue[int](), threading.Event(), threading.Event()

    async def script(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(received.body))
        await writer.drain()
        await lull()
        writer.write(UNASKED[unasked])
        if not UNASKED[unasked]:
            if writer.can_write_eof():
                writer.write_eof()  # at once: to close takes one more turn of this loop
            writer.close()
        sent.set()

    async def serve() -> None:
        async with serving(script, secure=context) as served:
            port.put(served.port)
            while not over.is_set():
                await asyncio.sleep(0.01)

    async def main() -> list[bytes]:
        async with HttpTransport(ca_file=certificates.ca_file) as http:
            url = f"{'https' if secure else 'http'}://localhost:{port.get(timeout=120)}"
            first = await read_all(await http.send(post(url, body=b"first")), 99)
            assert sent.wait(120)  # the loop is held up
            return [first, await read_all(await http.send(post(url, body=b"second")), 99)]

    server = threading.Thread(target=asyncio.run, args=(serve(),))
    server.start()
    try:
        assert asyncio.run(main()) == [b"first", b"second"]
    finally:
        over.set()
        server.join(120)


def test_no_more_connections_are_kept_than_may_be_used() -> None:
    async def main() -> list[int]:
        async with HttpTransport(connections=2) as http:
            opened = []
            async with serving(raw(whole())) as first, serving(raw(whole())) as second, serving(raw(whole())) as third:
                for served in (first, second, third, third):
                    await read_all(await http.send(post(served.url)), 99)
                await lull()
                opened = [served.open for served in (first, second, third)]
        return opened

    assert asyncio.run(main()) == [0, 1, 1]


def test_a_thousand_exchanges_at_once() -> None:
    async def main() -> tuple[int, int]:
        async def script(received: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + chunk(received.body) + b"0\r\n\r\n")

        async with serving(script) as served, HttpTransport(connections=50) as http:

            async def one(number: int) -> None:
                body = b"%d" % number
                request = post(served.url, Deadlines(connect=120, idle=120, total=120), body=body)
                assert await read_all(await http.send(request), 99) == body

            await asyncio.gather(*(one(number) for number in range(1000)))
            return len(served.requests), served.connections

    sent, connections = asyncio.run(main())
    assert sent == 1000
    assert connections <= 50


def test_many_threads_share_one_transport() -> None:
    http = HttpTransport()
    failed: list[BaseException] = []

    async def main() -> None:
        async with serving(raw(whole(b"ok"))) as served:
            for _ in range(20):
                assert await read_all(await http.send(post(served.url)), 99) == b"ok"

    def run() -> None:
        try:
            for _ in range(3):
                asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    assert len(http._pools) <= len(threads) + 1


def test_a_process_that_splits_uses_connections_of_its_own() -> None:
    """The child's requests go over new connections; the parent's are as they were."""

    async def main() -> tuple[int, int]:
        async with serving(raw(whole(b"ok"))) as served:
            http = HttpTransport()
            assert await read_all(await http.send(post(served.url)), 99) == b"ok"
            child = os.fork()
            if not child:
                os._exit(in_child(http, served.url))
            ended, status = 0, 0
            while not ended:
                await asyncio.sleep(0.01)
                ended, status = os.waitpid(child, os.WNOHANG)
            assert await read_all(await http.send(post(served.url)), 99) == b"ok"
            await http.aclose()
            return os.waitstatus_to_exitcode(status), served.connections

    assert asyncio.run(main()) == (0, 2)


def in_child(http: HttpTransport, url: str) -> int:
    async def once() -> bytes:
        return await read_all(await http.send(post(url)), 99)

    asyncio.events._set_running_loop(None)
    asyncio.set_event_loop_policy(None)
    with suppress(BaseException):
        return 0 if asyncio.run(once()) == b"ok" else 1
    return 2


def through(proxy: Served, certificates: Certificates) -> HttpTransport:
    return HttpTransport(proxy=proxy.url, ca_file=certificates.ca_file)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tunnel"])
def test_nothing_that_is_logged_warned_or_shown_has_a_secret(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], secure: bool
) -> None:
    """Not even with asyncio's debugging, which tells of every slow step, every transport and every task."""
    scripts = [raw(whole()), raw(CHUNKED, chunk(b"x"), end="reset"), raw(b"junk"), raw(end="hang"), raw(end="close")]

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        loop.slow_callback_duration = 0.0
        shown: list[str] = []
        for script in scripts:
            context = certificates.server if secure else None
            async with serving(script, secure=context) as served, proxying() as proxy, through(proxy, certificates) as http:
                request = post(served.url, Deadlines(connect=120, idle=0.2, total=120))
                task = asyncio.create_task(http.send(request))
                await asyncio.sleep(0)
                shown += [repr(task), repr(task.get_stack()), repr(http), repr(vars(http))]
                try:
                    response = await task
                    shown += [repr(response), repr(vars(response))]
                    await response.read()
                    await response.read()
                except EvenerError as error:
                    shown += [repr(error), str(error), repr(error.__context__)]
                pool = http._pools[loop]
                shown += [repr(vars(pool)), *(repr(vars(connection)) for connection in pool._open)]
                shown += [repr(timer) for timer in getattr(loop, "_scheduled", ())]
        return shown

    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        shown = asyncio.run(main(), debug=True)
        gc.collect()
    out, err = capfd.readouterr()
    texts = [*shown, caplog.text, out, err, *(str(warning.message) for warning in told)]
    assert len(caplog.text) > 1000
    assert not [text for text in texts if SECRET in text or PASSWORD in text]
