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

from evener.transport.addresses import PrivateAddress, is_public
from evener.transport.exchange import Reach

__all__ = ["check_numeric", "connected", "has_news"]

Place = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Place]
NEXT_ADDRESS = 0.25
"""Seconds after which the next address of a host is tried beside the first."""
UNREACHABLE = {EADDRNOTAVAIL, EAFNOSUPPORT, EHOSTUNREACH, ENETUNREACH}
"""What one hears of an address of IPv6 where there is none: tells less than what one hears of another."""
UNSENT = 128 * 1024
"""Bytes that the system takes and keeps back: what it has taken shall mean that something moves."""


async def connected(host: str, port: int, *, reach: Reach = "anywhere") -> socket.socket:
    """Connected to one of the host's addresses, the first that answers. Raises OSError.

    With the reach "public" its other addresses are left out, PrivateAddress if there are no more; the connection is made to
    an address that was looked at, and the name is not looked up again.
    """
    loop = asyncio.get_running_loop()
    found = await _addresses(host, port)
    left = deque(found if reach == "anywhere" else _public(host, found))
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


def check_numeric(host: str) -> None:
    """Refuse a numeric address, in any spelling, that is not public, and the names of this machine. Looks nothing up."""
    if host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost"):
        raise _private(host, "127.0.0.1")
    with suppress(socket.gaierror):
        _public(host, socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))


def _public(host: str, addresses: Sequence[Address]) -> Sequence[Address]:
    public = [address for address in addresses if is_public(str(address[4][0]))]
    if addresses and not public:
        raise _private(host, str(addresses[0][4][0]))
    return public


def _private(host: str, address: str) -> PrivateAddress:
    return PrivateAddress(
        f"{host} leads to {address}, which is not in the public internet: it belongs to this machine, a private network, or "
        "nothing. Nothing was sent. If you mean to fetch media from there, say Harness(..., media_from='anywhere')."
    )


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
