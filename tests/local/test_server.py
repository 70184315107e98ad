"""The model's process: reached by its parent only, and gone with it, however that ends."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from evener.errors import AuthFailed, ConnectFailed, TimedOut, UsageError
from evener.local import LocalSettings, LocalTransport, locate_weights
from evener.local.keeper import CHILD, ChildAddress
from evener.local.server import LocalServer, borrow_server, return_server, stop_servers
from evener.transcript import Extra, Message, Settings
from evener.transport.exchange import Request, Response
from evener.transport.http import HttpTransport
from tests.local.stack import MODEL, SECONDS, SETTINGS, WIRES, answer, asked, encoded, request
from tests.patience import wait_until

HELLO = [Message.user_text("Say hello.")]
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def address(server: LocalServer) -> ChildAddress:
    return asyncio.run(server.address(seconds=SECONDS))


def port(base: str) -> int:
    return urlsplit(base).port or 0


def refused(host: str, number: int) -> bool:
    try:
        socket.create_connection((host, number), timeout=120).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        return False  # it was still there, and ended in the midst of this
    return False


def gone(number: int) -> bool:
    """Whether nobody listens there any more, waited for."""
    wait_until(lambda: refused("127.0.0.1", number))
    return True


@contextmanager
def borrowed(model: str, **settings: int | float) -> Iterator[LocalServer]:
    server = borrow_server(locate_weights(model), LocalSettings(**settings))  # type: ignore[arg-type]
    try:
        yield server
    finally:
        return_server(server)


# Who can reach it.


def test_it_listens_on_loopback_only(server: LocalServer) -> None:
    base = address(server).base
    assert base == f"http://127.0.0.1:{port(base)}"
    assert not refused("127.0.0.1", port(base))
    assert refused("127.0.0.2", port(base)), "a server on all addresses would answer here, too"


@linux
def test_the_key_is_neither_on_the_command_line_nor_in_the_environment(server: LocalServer) -> None:
    key = address(server).key
    folder = Path(f"/proc/{server.pid}")
    assert len(key) > 30
    assert str(CHILD).encode() in (folder / "cmdline").read_bytes()
    for name in ("cmdline", "environ"):
        assert key.encode() not in (folder / name).read_bytes()


def test_the_key_is_not_shown(server: LocalServer) -> None:
    found = address(server)
    assert found.key not in repr(found) + repr(server) + str(vars(server))


class Rekeyed:
    """Carries requests with another key than the one they were given."""

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._http = HttpTransport(trust_env=False)

    async def send(self, request: Request) -> Response:
        kept = tuple((name, value) for name, value in request.headers if name != "authorization")
        mine = () if self._key is None else (("authorization", f"Bearer {self._key}"), ("x-api-key", self._key))
        return await self._http.send(replace(request, headers=(*kept, *mine)))

    async def aclose(self) -> None:
        await self._http.aclose()


@pytest.mark.parametrize("key", ["wrong", "", None])
@pytest.mark.parametrize("row", WIRES)
def test_another_key_is_refused(row: str, key: str | None, server: LocalServer) -> None:
    async def ask() -> None:
        inner = Rekeyed(key)
        try:
            async with LocalTransport(MODEL, inner=inner, settings=server.settings) as transport:
                await answer(transport, row, asked(row, HELLO))
        finally:
            await inner.aclose()

    with pytest.raises(AuthFailed, match="Invalid API Key"):
        asyncio.run(ask())


class Recorder:
    """Takes requests and hands them to nobody."""

    def __init__(self) -> None:
        self.seen: list[Request] = []

    async def send(self, request: Request) -> Response:
        self.seen.append(request)
        raise ConnectFailed("not sent")


def test_only_address_key_and_deadline_of_a_request_change(server: LocalServer) -> None:
    async def ask(inner: Recorder, asked: Request) -> None:
        async with LocalTransport(MODEL, inner=inner, settings=SETTINGS) as transport:
            await transport.send(asked)

    inner, found = Recorder(), address(server)
    headers = (("X-API-Key", "mine"), ("Authorization", "Bearer mine"), ("x-other", "1"))
    sent = Request("https://example.org:1/v1/messages?beta=true", headers, b"{}")
    with pytest.raises(ConnectFailed, match="not sent"):
        asyncio.run(ask(inner, sent))
    [seen] = inner.seen
    assert seen.url == f"{found.base}/v1/messages?beta=true"
    assert seen.headers == (("x-other", "1"), ("authorization", f"Bearer {found.key}"), ("connection", "close"))
    assert (seen.body, seen.method, seen.deadlines.idle) == (sent.body, sent.method, sent.deadlines.idle)
    assert 0 < seen.deadlines.total <= sent.deadlines.total


# How long it lives.


def test_it_starts_with_the_first_request_and_ends_with_the_last_user(weights: Path) -> None:
    own = LocalSettings(context=512, parallel=1)

    async def use() -> int:
        first, second = (LocalTransport(MODEL, settings=own) for _ in range(2))
        assert first.pid is None
        await answer(first, "local", asked("local", HELLO))
        await answer(second, "local", asked("local", HELLO))
        assert first.pid == second.pid
        probe = borrow_server(locate_weights(MODEL), own)
        number = port((await probe.address(seconds=SECONDS)).base)
        return_server(probe)
        await first.aclose()
        assert not refused("127.0.0.1", number), "the second one still uses it"
        await second.aclose()
        return number

    assert weights
    assert gone(asyncio.run(use()))


def test_it_is_ready_and_again_after_it_was_killed(weights: Path) -> None:
    async def use(server: LocalServer) -> None:
        async with LocalTransport(MODEL, settings=server.settings) as transport:
            first, _ = await answer(transport, "local", asked("local", HELLO))
            killed = kill(server)
            second, _ = await answer(transport, "local", asked("local", HELLO))
            assert server.pid not in (None, killed)
            assert first.text == second.text

    assert weights
    with borrowed(MODEL, context=512, parallel=1) as server:
        asyncio.run(use(server))


def kill(server: LocalServer) -> int:
    """End its process as the kernel would when memory runs out. Returns when that has been noticed."""
    pid = server.pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: server.pid is None)
    return pid


def test_it_outlives_the_thread_that_first_asked(weights: Path) -> None:
    """The kernel ends it with the thread that started it: that must not be one of the caller's."""
    assert weights
    with borrowed(MODEL, context=256, parallel=1) as server:
        asker = threading.Thread(target=lambda: address(server))
        asker.start()
        asker.join(SECONDS)
        pid = server.pid
        assert pid
        assert not refused("127.0.0.1", port(address(server).base))
        assert server.pid == pid


def test_threads_and_loops_share_it(server: LocalServer) -> None:
    found: list[ChildAddress] = []
    threads = [threading.Thread(target=lambda: found.append(address(server))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert len(found) == 4
    assert len(set(found)) == 1


USER = """
import asyncio, sys
from evener.local import LocalTransport, LocalSettings
from tests.local.stack import answer, asked
from evener.transcript import Message

async def main():
    transport = LocalTransport("smollm2", settings=LocalSettings(context=512, parallel=1))
    await answer(transport, "local", asked("local", [Message.user_text("Say hello.")]))
    address = await transport._server.address(seconds=120)
    print(address.base, flush=True)
    {then}

asyncio.run(main())
"""


def started(then: str) -> tuple[subprocess.Popen[str], int]:
    """A program that uses the model and then does something; with the port of its model."""
    program = subprocess.Popen(
        [sys.executable, "-c", USER.format(then=then)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout
    number = port(program.stdout.readline().strip())
    assert number
    return program, number


@pytest.mark.parametrize(
    ("then", "end"),
    [
        ("sys.stdin.read()", signal.SIGKILL),
        ("sys.stdin.read()", signal.SIGTERM),
        ("return", None),
        ("raise SystemExit(3)", None),
        ("import os; os._exit(1)", None),
    ],
)
def test_it_ends_with_its_parent(then: str, end: signal.Signals | None, weights: Path) -> None:
    assert weights
    program, number = started(then)
    with program:
        if end is not None:
            assert not refused("127.0.0.1", number)
            program.send_signal(end)
        program.wait(SECONDS)
        assert gone(number)


def test_an_interrupt_is_its_parents_affair(local: LocalTransport, server: LocalServer) -> None:
    async def ask() -> str:
        async with local:
            return (await answer(local, "local", asked("local", HELLO)))[0].text

    assert asyncio.run(ask())
    pid = server.pid
    assert pid
    os.kill(pid, signal.SIGINT)
    assert asyncio.run(ask())
    assert server.pid == pid


def child(settings: dict[str, object]) -> subprocess.Popen[bytes]:
    found = subprocess.Popen([sys.executable, "-P", str(CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert found.stdin
    found.stdin.write(json.dumps(settings).encode() + b"\n")
    found.stdin.flush()
    return found


def handed(weights: Path, **changes: object) -> dict[str, object]:
    own = {"model": str(weights), "name": "m", "key": "k", "mark": "MARK", "parent": os.getpid(), "path": sys.path}
    return {**own, "context": 256, "parallel": 1, "threads": 1, **changes}


def test_the_child_ends_when_its_input_ends(weights: Path) -> None:
    """What makes it portable: elsewhere the kernel does not kill it with its parent."""
    with child(handed(weights)) as found:
        assert found.stdin
        assert found.stdout
        said = next(line for line in found.stdout if line.startswith(b"MARK "))
        number = port(json.loads(said.removeprefix(b"MARK "))["address"])
        assert not refused("127.0.0.1", number)
        found.stdin.close()
        assert found.wait(SECONDS) == 0
        assert gone(number)


@linux
def test_a_child_whose_parent_has_already_gone_does_not_start(weights: Path) -> None:
    with child(handed(weights, parent=1)) as found:
        assert found.communicate(timeout=SECONDS)[0] == b""


@linux
def test_a_fork_of_the_parent_leaves_it_alone(server: LocalServer) -> None:
    found = address(server)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later versions of Python warn of forks beside threads
        pid = os.fork()
    if pid == 0:
        stop_servers()
        os._exit(0 if server.pid is None else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert address(server) == found
    assert not refused("127.0.0.1", port(found.base))


# When it cannot run.


def failing(model: str, **settings: int | float) -> None:
    with borrowed(model, **settings) as server:
        address(server)


@pytest.mark.parametrize("cut", [1000, 1_000_000], ids=["in its head", "in its tensors"])
def test_a_corrupt_file_is_told_with_llamas_own_words(cut: int, weights: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(weights.read_bytes()[:cut])
    with pytest.raises(UsageError, match=r"could not load .*cut\.gguf.*file is whole(?s:.*)failed to"):
        failing(str(path))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        failing(str(tmp_path / "none.gguf"))


def test_a_missing_llama_is_told_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(UsageError, match=r"pip install 'evener\[local\]'"):
        failing(str(tmp_path / "any.gguf"))


def test_one_that_takes_too_long_is_ended(weights: Path) -> None:
    assert weights
    with pytest.raises(TimedOut, match=r"not ready after 0\.01 seconds"):
        failing(MODEL, context=256, start_seconds=0.01)


def test_one_who_waits_too_long_gives_up_alone(weights: Path) -> None:
    assert weights

    async def wait(server: LocalServer) -> ChildAddress:
        patient = asyncio.create_task(server.address(seconds=SECONDS))
        with pytest.raises(TimedOut, match=r"within 0\.01 seconds\. It is still loading"):
            await server.address(seconds=0.01)
        hasty = asyncio.create_task(server.address(seconds=SECONDS))
        await asyncio.sleep(0)
        hasty.cancel()
        return await patient

    with borrowed(MODEL, context=256, parallel=1) as server:
        assert asyncio.run(wait(server)).base


def test_a_request_that_meets_its_end_is_told(weights: Path) -> None:
    class Killing:
        """Carries requests after the process has ended."""

        def __init__(self, server: LocalServer) -> None:
            self._server = server

        async def send(self, request: Request) -> Response:
            kill(self._server)
            async with HttpTransport(trust_env=False) as http:
                return await http.send(request)

    async def ask(server: LocalServer) -> None:
        async with LocalTransport(MODEL, inner=Killing(server), settings=server.settings) as transport:
            await answer(transport, "local", asked("local", HELLO))

    assert weights
    ended = pytest.raises(ConnectFailed, match=r"'smollm2' has ended\. It ended with code -9")
    with borrowed(MODEL, context=256, parallel=1) as server, ended as caught:
        asyncio.run(ask(server))
    assert caught.value.retryable


# More than one at a time.


def test_a_short_answer_does_not_wait_for_a_long_one(local: LocalTransport) -> None:
    endless = Extra("openai_chat", '{"ignore_eos":true}', provider="local")
    long = asked("local", HELLO, settings=Settings(max_output_tokens=1500), extra=(endless,))

    async def both() -> tuple[bytes, str]:
        async with local:
            running = await local.send(request("local", encoded("local", long)))
            try:
                begun = await running.read()
                reply, _ = await answer(local, "local", asked("local", HELLO))
                seen = begun + await running.read()
            finally:
                await running.aclose()
            return seen, reply.text

    seen, text = asyncio.run(both())
    assert text
    assert b"[DONE]" not in seen
