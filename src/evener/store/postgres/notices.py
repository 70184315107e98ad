"""Learns by LISTEN which logs have a new note, so that a waiting run does not query the server twice a second.

A notification may be lost (a connection that breaks, a proxy that does not pass it on), so it is only a hint: while the
listener is not connected, each check queries the server; while it is, a check queries it every few seconds.
"""

from select import select
from socket import socketpair
from threading import Event as Signal
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING

from evener.store.postgres.connection import Dial, postgres_error

if TYPE_CHECKING:
    import psycopg


CHANNEL = "evener"
ANYWAY = 5.0
"""Seconds after which a look asks the server although nothing was heard."""
PAUSE = 1.0


class NoticeListener:
    """One thread and one connection for all logs of a store. It starts with the first log that is watched."""

    def __init__(self, dial: Dial, channel: str) -> None:
        self._dial = dial
        self._channel = channel
        self._lock = Lock()
        self._thread: Thread | None = None
        self._stopped = Signal()
        self._bell, self._ring = socketpair()  # wakes the thread when it is to stop
        self._hears = False
        self._quiet: dict[int, float] = {}  # logs that had no note, and when we looked

    def is_quiet(self, log: int) -> bool:
        """True if the log had no note when it was looked at last, a moment ago, and nothing was heard since."""
        self._start()
        looked = self._quiet.get(log)
        return self._hears and looked is not None and monotonic() - looked < ANYWAY

    def looking(self, log: int) -> None:
        """Note that the log is looked at now; what is heard from now on counts."""
        if self._hears:
            self._quiet[log] = monotonic()

    def hear(self, log: int) -> None:
        """Note that the log has a note, or may have."""
        self._quiet.pop(log, None)

    def stop(self) -> None:
        """Hear nothing more."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._bell.send(b"\0")
        thread = self._thread
        if thread is not None:
            thread.join(PAUSE)
        self._bell.close()
        if thread is None or not thread.is_alive():
            self._ring.close()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = Thread(target=self._serve, name="evener notices", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._dial() as connection:
                    self._listen(connection)
            except Exception as error:
                postgres_error(error)  # whatever it is: each look asks until we hear again
            self._hears = False
            self._quiet.clear()
            self._stopped.wait(PAUSE)

    def _listen(self, connection: "psycopg.Connection") -> None:
        connection.execute(f"LISTEN {self._channel}".encode())
        self._hears = True
        while not self._stopped.is_set():
            select([connection.fileno(), self._ring.fileno()], [], [], ANYWAY)
            for notice in connection.notifies(timeout=0):
                if notice.payload.isdecimal():
                    self.hear(int(notice.payload))
