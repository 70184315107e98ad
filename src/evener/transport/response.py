"""An answer's body as it arrives: decompressed, in bounded pieces. It has a slot of the pool until it is over."""

import asyncio
from collections.abc import Coroutine, Mapping

from evener.errors import EvenerError, TimedOut, UsageError
from evener.transport.connection import Connection
from evener.transport.inflate import Inflater

__all__ = ["HttpResponse"]

BURST = 256 * 1024
"""Bytes that are decompressed without a wait: a little that came can become very much, and others want their turn."""


class HttpResponse:
    """A Response over a connection whose answer's head has come."""

    _held = False

    def __init__(self, connection: Connection, place: str) -> None:
        answer = connection.answer
        self.status: int = answer.status
        self.headers: Mapping[str, str] = answer.headers
        encoding = answer.headers.get("content-encoding", "").strip().lower()
        self._encoding = "" if encoding == "identity" else encoding
        self._inflater: Inflater | None = None
        self._burst = 0
        self._connection = connection
        self._place = place
        self._failure: EvenerError | None = None
        self._closed = False
        self._ended = False
        self._held = True

    def __del__(self) -> None:
        """One that was not closed must not hold its slot until the deadline."""
        if self._held:
            self._connection.forget()

    def read(self) -> Coroutine[object, None, bytes]:
        """The next bytes; see `Response`."""
        return self._inflated() if self._encoding else self._piece()

    @property
    def ended(self) -> bool:
        """Whether all has been read, as far as one can know without waiting: then nothing more comes."""
        return self._ended or (self._held and not self._encoding and self._connection.ended)

    async def aclose(self) -> None:
        """Let go of the connection; see `Response`. More than once does no harm."""
        self.close()

    def __repr__(self) -> str:
        return f"HttpResponse({self.status} from {self._place})"

    async def _inflated(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        try:
            if self._burst > BURST:
                await self._give_way()
            inflater = self._inflater = self._inflater or Inflater(self._encoding)
            while not (piece := inflater.take()):
                fed = await self._piece()
                if not fed:
                    inflater.finish()
                    return b""
                inflater.feed(fed)
        except UsageError:
            raise
        except EvenerError as error:
            self._failure = error
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        self._burst += len(piece)
        return piece

    async def _give_way(self) -> None:
        """Let others have their turn, the timer of the deadlines among them."""
        self._burst = 0
        await asyncio.sleep(0)
        if isinstance(self._connection.failure, TimedOut):
            raise self._connection.failure

    async def _piece(self) -> bytes:
        """The next bytes as they came."""
        if self._closed:
            return self._over()
        try:
            piece = await self._connection.read()
        except UsageError:
            raise
        except EvenerError as error:
            self._failure = error
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        if not piece:
            self.close()
        return piece

    def _over(self) -> bytes:
        failure = self._failure
        if failure is not None:
            raise failure
        if not self._ended:
            raise UsageError("This answer was closed before its end, so no more can be read from it. Read first, then close.")
        return b""

    def close(self) -> None:
        """`aclose`, which has nothing to wait for here."""
        if not self._closed:
            self._closed = True
            self._ended = self._connection.ended
            self._held = False
            self._connection.let_go()
