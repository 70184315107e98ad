"""`FakeServer`: one fake provider on a loopback port, in its own thread, for sync and async tests.

Binds to 127.0.0.1 only. When it is closed, its thread, its event loop and its sockets end.
"""

import asyncio
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Self

from evener.errors import UsageError
from evener.testing.check import DIALECTS
from evener.testing.servers.http import converse
from evener.testing.servers.provider import WIRES, Entry, FakeProvider, Script, Scripted
from evener.testing.servers.responses import ResponsesWire
from evener.testing.servers.wire import Received, Rejected, ServerSettings

HOST = "127.0.0.1"
SECONDS = 10.0


class FakeServer:
    """A strict provider that answers from a script. Use it in a `with` or an `async with`, or call `start` and `close`.

    `script`: entries that are used in their order, rules `(question, entry)` of which the first that matches answers, or a
    function of the request. A request that the real provider would refuse gets that refusal and uses no entry. `key`: the
    only accepted key. `models`: the only available models. `dialect`: the server that is imitated (Chat, Gemini; see
    `check_request`). `issued`: seals to accept besides its own, with their texts. Without `prefix_bound`, reasoning is also
    accepted after another prefix. Two servers with the same `seed` mint the same ids and seals; without one, all differ.
    Without `retention` it stores no answers or conversations (Responses), as for an account that forbids storing.
    """

    def __init__(
        self,
        wire: str,
        script: Script = (),
        *,
        key: str = "",
        models: Sequence[str] = (),
        dialect: str = "",
        prefix_bound: bool = True,
        issued: Mapping[str, str] | None = None,
        seed: str = "",
        retention: bool = True,
    ) -> None:
        if wire not in WIRES:
            raise UsageError(f"There is no fake server for the wire {wire!r}. There is one for each of {', '.join(WIRES)}.")
        if dialect and dialect not in DIALECTS.get(wire, ()):
            known = ", ".join(sorted(DIALECTS.get(wire, ()))) or "none"
            raise UsageError(f"The fake of the wire {wire!r} has no dialect {dialect!r}. Known are {known}.")
        if isinstance(models, str):
            raise UsageError(f"The models of a fake server are a list. Write models=[{models!r}].")
        settings = ServerSettings(
            models=tuple(models),
            dialect=dialect,
            prefix_bound=prefix_bound,
            issued=dict(issued or {}),
            key=key,
            seed=seed,
            retention=retention,
        )
        self._provider = FakeProvider(wire, settings, Scripted(script))
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._guests: dict[asyncio.Task[None], socket.socket] = {}
        self._port = 0

    @property
    def url(self) -> str:
        """The base URL: what a row or an SDK takes in place of the provider's own."""
        if not self._port:
            raise UsageError("The fake server is not running, so it has no URL. Use it in a `with`, or call `start`.")
        return f"http://{HOST}:{self._port}{self._provider.wire.base}"

    @property
    def requests(self) -> list[Received]:
        """All requests in the order of arrival. They contain keys: use them only in the test."""
        return self._provider.requests

    @property
    def rejected(self) -> list[Rejected]:
        """The requests that the provider would have refused, with the reasons."""
        return self._provider.rejected

    @property
    def left(self) -> int:
        """The number of entries of the script that were not used yet. Rules and functions never count as used."""
        return self._provider.script.left

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._guests)

    def add(self, *entries: Entry) -> None:
        """Add entries at the end of the script."""
        self._provider.script.add(*entries)

    def held(self, name: str) -> list[object] | None:
        """Return the items that are stored up to an answer, or in a conversation, of this id (Responses); None when they are
        not.
        """
        wire = self._provider.wire
        return wire.held(name) if isinstance(wire, ResponsesWire) else None

    def forget(self) -> None:
        """Lose all stored answers and conversations (Responses), as if they had expired."""
        wire = self._provider.wire
        if isinstance(wire, ResponsesWire):
            wire.forget()

    def start(self) -> Self:
        """Start to listen. A client can connect when this returns."""
        if self._thread is not None:
            raise UsageError("The fake server is running already. Make another one for another port.")
        self._thread = threading.Thread(target=self._run, name="evener-fake-server", daemon=True)
        self._thread.start()
        self._ready.wait()  # it is set when the thread ends, too
        if not self._port:
            raise UsageError(f"The fake server could not listen on {HOST}. Does this machine have a loopback interface?")
        return self

    def close(self) -> None:
        """Stop at once, even in the middle of an answer, and release everything."""
        if self._thread is None:
            return
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SECONDS)
        self._thread, self._loop, self._stop, self._port = None, None, None, 0
        self._ready.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        guests = self._guests

        def leave(task: asyncio.Task[None]) -> None:
            guests.pop(task).close()

        def enter() -> None:
            with suppress(BlockingIOError, ConnectionError):
                link, _ = listener.accept()
                link.setblocking(False)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else what follows a head waits 40 ms for an echo
                task = asyncio.get_running_loop().create_task(converse(link, self._provider.respond))
                guests[task] = link
                task.add_done_callback(leave)

        with socket.create_server((HOST, 0)) as listener:
            listener.setblocking(False)
            self._loop.add_reader(listener, enter)
            self._port = listener.getsockname()[1]
            self._ready.set()
            await self._stop.wait()
            self._loop.remove_reader(listener)
        for task in guests:
            task.cancel()
        await asyncio.gather(*guests, return_exceptions=True)
        await asyncio.sleep(0)  # an aborted connection lets go of its socket in the next turn of the loop
