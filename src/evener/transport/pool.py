"""The connections of one event loop, and when they close: with the loop. The HTTP library is loaded by the first pool."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from evener.errors import BadValue

if TYPE_CHECKING:
    import aiohttp
    import yarl

__all__ = ["Pool", "address", "open_pool", "timeout"]

BUFFER = 64 * 1024
"""Bytes: a body that nobody reads stops coming at about twice as many."""

LINE, LINES = 16 * 1024, 128
"""Of an answer's head: the longest line, and how many."""

KEPT_SECONDS = 30.0
"""How long an unused connection is kept; servers commonly close theirs after a minute or more."""

AUTOMATIC = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class Pool:
    """A session of the library. `slots` bounds the exchanges that are open at once; whoever took one gives it back.

    `answers` ends those that are still open when the pool closes, one function each.
    """

    def __init__(self, session: "aiohttp.ClientSession", slots: asyncio.Semaphore) -> None:
        self.session = session
        self.slots = slots
        self.answers: set[Callable[[], None]] = set()
        self._keeper = _keeper(session, self.answers)

    async def watch(self) -> None:
        """Have the loop close the session when it shuts down: it finishes every generator that was begun in it."""
        await anext(self._keeper)

    async def aclose(self) -> None:
        await self._keeper.aclose()


async def open_pool(connections: int, ca_file: str | None) -> Pool:
    """Connections for the running loop. Opens none yet."""
    import aiohttp

    connector = aiohttp.TCPConnector(
        ssl=True if ca_file is None else _trust(ca_file), limit=0, keepalive_timeout=KEPT_SECONDS, ttl_dns_cache=60
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=AUTOMATIC,
        auto_decompress=False,
        trust_env=False,
        read_bufsize=BUFFER,
        max_line_size=LINE,
        max_field_size=LINE,
        max_headers=LINES,
    )
    pool = Pool(session, asyncio.Semaphore(connections))
    await pool.watch()
    return pool


async def _keeper(session: "aiohttp.ClientSession", answers: set[Callable[[], None]]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        for end in tuple(answers):
            end()
        await session.close()
        await asyncio.sleep(0)  # the closed connections say so once more before the loop may end


@lru_cache(64)
def address(url: str) -> "yarl.URL":
    """The address as it was written: what was signed must be what is sent."""
    import yarl

    return yarl.URL(url, encoded=True)


@lru_cache(64)
def timeout(connect: float, idle: float) -> "aiohttp.ClientTimeout":
    """The two deadlines that the library keeps; to it zero means none."""
    import aiohttp

    least = 0.001
    return aiohttp.ClientTimeout(total=None, connect=max(connect, least), sock_read=max(idle, least), ceil_threshold=inf)


@lru_cache(16)
def _trust(ca_file: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=ca_file)
    except (OSError, ssl.SSLError):
        raise BadValue(
            f"No certificate could be read from {ca_file!r}: `ca_file` must name a file of PEM certificates."
        ) from None
    return context
