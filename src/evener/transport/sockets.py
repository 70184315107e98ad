"""A socket that is connected to a host: names looked up, addresses tried a moment apart. Knows nothing of TLS or HTTP.

Names are looked up in threads of their own. The event loop's few are shared with whatever else waits in them, and a loop that
ends waits for them: a name server that does not answer would hold up both.
"""

import asyncio
import select
import socket
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from errno import EADDRNOTAVAIL, EAFNOSUPPORT, EHOSTUNREACH, ENETUNREACH
from threading import Thread

__all__ = ["connected", "has_news"]

Place = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Place]
NEXT_ADDRESS = 0.25
"""Seconds after which the next address of a host is tried beside the first."""
UNREACHABLE = {EADDRNOTAVAIL, EAFNOSUPPORT, EHOSTUNREACH, ENETUNREACH}
"""What one hears of an address of IPv6 where there is none: tells less than what one hears of another."""
UNSENT = 128 * 1024
"""Bytes that the system takes and keeps back: what it has taken shall mean that something moves."""


async def connected(host: str, port: int) -> socket.socket:
    """Connected to one of the host's addresses, the first that answers. Raises OSError."""
    loop = asyncio.get_running_loop()
    left = deque(await _addresses(host, port))
    if len(left) == 1:
        return await _connected(left[0])
    tried: list[asyncio.Task[socket.socket]] = []
    failed: list[BaseException] = []
    try:
        while left or len(failed) < len(tried):
            if left:
                tried.append(loop.create_task(_connected(left.popleft())))
            running = [task for task in tried if not task.done()] or tried[-1:]
            await asyncio.wait(running, timeout=NEXT_ADDRESS if left else None, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in tried if task.done()]:
                error = task.exception()
                if error is None:
                    tried.remove(task)
                    return task.result()
                if error not in failed:
                    failed.append(error)
        raise min(failed, key=_says_little, default=socket.gaierror(socket.EAI_NONAME, "no address"))
    finally:
        for task in tried:
            task.cancel()
            task.add_done_callback(_unwanted)


def has_news(found: socket.socket) -> bool:
    """Whether something has come, an end included, that the event loop may not have told yet."""
    if sys.platform == "win32":
        return bool(select.select((found,), (), (), 0)[0])
    looking = select.poll()
    looking.register(found, select.POLLIN)
    return bool(looking.poll(0))


def _says_little(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in UNREACHABLE


async def _addresses(host: str, port: int) -> Sequence[Address]:
    """What the host's name stands for. An address stands for itself."""
    with suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[Address]] = loop.create_future()

    def look() -> None:
        try:
            answer: Sequence[Address] | OSError = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            answer = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_tell, found, answer)

    Thread(target=look, name="evener-name", daemon=True).start()
    return await found


def _tell(found: asyncio.Future[Sequence[Address]], answer: Sequence[Address] | OSError) -> None:
    if found.done():
        return
    if isinstance(answer, OSError):
        found.set_exception(answer)
    else:
        found.set_result(answer)


async def _connected(address: Address) -> socket.socket:
    family, kind, protocol, _, place = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with suppress(AttributeError, OSError):  # not every system has it
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        await asyncio.get_running_loop().sock_connect(made, place)
    except BaseException:
        made.close()
        raise
    return made


def _unwanted(task: "asyncio.Task[socket.socket]") -> None:
    """Another address was quicker, or nobody waits any more."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
