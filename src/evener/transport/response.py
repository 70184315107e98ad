"""An answer's body as it arrives: decompressed, in bounded pieces. It has a slot of the pool until it is over."""

from collections.abc import Coroutine, Mapping

from evener.errors import EvenerError, TruncatedStream, UsageError, WireError
from evener.transport.connection import Connection
from evener.transport.inflate import Inflater

__all__ = ["HttpResponse"]


class HttpResponse:
    """A Response over a connection whose answer's head has come."""

    _held = False

    def __init__(self, connection: Connection, place: str) -> None:
        answer = connection.answer
        self.status: int = answer.status
        self.headers: Mapping[str, str] = answer.headers
        encoding = answer.headers.get("content-encoding", "").strip().lower()
        self._inflater = None if encoding in ("", "identity") else Inflater(encoding)
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
        return self._piece() if self._inflater is None else self._inflated(self._inflater)

    @property
    def ended(self) -> bool:
        """Whether all has been read, as far as one can know without waiting: then nothing more comes."""
        return self._ended or (self._held and self._inflater is None and self._connection.ended)

    async def aclose(self) -> None:
        """Let go of the connection; see `Response`. More than once does no harm."""
        self.close()

    def __repr__(self) -> str:
        return f"HttpResponse({self.status} from {self._place})"

    async def _inflated(self, inflater: Inflater) -> bytes:
        try:
            while not (piece := inflater.take()):
                fed = await self._piece()
                if not fed:
                    inflater.finish()
                    return b""
                inflater.feed(fed)
        except (TruncatedStream, WireError) as error:
            self._failure = error
            self.close()
            raise
        return piece

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
