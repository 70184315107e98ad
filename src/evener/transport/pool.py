"""The connections of one event loop, kept between exchanges, and closed with the loop. Opens none itself."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from evener.errors import UsageError
from evener.transport.connection import Connection

__all__ = ["Pool"]

KEPT_SECONDS = 30.0
"""How long an unused connection is kept; servers commonly close theirs after a minute or more."""
TURNS = 16
"""Turns of the loop that closed connections have to say so."""


class Slots:
    """So many at once; who waits has their turn in order."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: deque[asyncio.Future[None]] = deque()

    def taken(self) -> bool:
        """Take one, if there is one and nobody waits."""
        if not self._free or self._waiting:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Take one when it is our turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # it was ours already
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def release(self) -> None:
        """Give one back: to the first who waits, or to whoever comes."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Pool:
    """`slots` bounds the exchanges that are open at once; whoever took one gives it back. No more connections are kept."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self.slots = Slots(most)
        self._most = most
        self._loop = loop
        self._idle: dict[object, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._keeper = self._kept()

    async def watch(self) -> None:
        """Have the loop close the connections when it shuts down: it finishes every generator that was begun in it."""
        await anext(self._keeper)

    async def aclose(self) -> None:
        await self._keeper.aclose()

    def take(self, route: object) -> Connection | None:
        """A connection for this route that nobody uses, the one used last."""
        idle = self._idle.get(route)
        oldest = self._loop.time() - KEPT_SECONDS
        while idle:
            found = idle.pop()
            if found.idle_since > oldest and found.fit:
                return found
            self.drop(found)
        return None

    def give(self, route: object, connection: Connection) -> None:
        """One whose exchange is over, with its slot. It is kept if it may carry another."""
        self.slots.release()
        if not connection.end() or self._closed:
            self.drop(connection)
            return
        self._idle.setdefault(route, []).append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEPT_SECONDS, self._swept)

    def add(self, connection: Connection) -> None:
        """A new one, to be closed with the others."""
        if self._closed:
            connection.abort()
            return
        self._open.add(connection)
        if len(self._open) > self._most:
            self._drop_oldest()

    def drop(self, connection: Connection) -> None:
        """One that is of no more use."""
        connection.abort()
        self._open.discard(connection)

    def _drop_oldest(self) -> None:
        """Of those that nobody uses."""
        routes = [route for route, idle in self._idle.items() if idle]
        if routes:
            self.drop(self._idle[min(routes, key=lambda route: self._idle[route][0].idle_since)].pop(0))

    def _swept(self) -> None:
        self._sweep = None
        now = self._loop.time()
        for route in tuple(self._idle):
            kept = []
            for connection in self._idle.pop(route):
                if connection.lost or connection.idle_since <= now - KEPT_SECONDS:
                    self.drop(connection)
                else:
                    kept.append(connection)
            if kept:
                self._idle[route] = kept
        if self._idle:
            self._sweep = self._loop.call_later(KEPT_SECONDS, self._swept)

    async def _kept(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._closed = True
            if self._sweep is not None:
                self._sweep.cancel()
            self._idle.clear()
            closing = tuple(self._open)
            for connection in closing:
                if connection.release is not None:  # somebody has its answer
                    connection.fail(
                        UsageError("The transport was closed before the end of this answer. Read first, then close.")
                    )
                self.drop(connection)
            for _ in range(TURNS):
                if all(connection.gone for connection in closing):
                    break
                await asyncio.sleep(0)
