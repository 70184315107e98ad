"""One thread with one SQLite connection. It takes jobs from any event loop and answers each when its work is done for good.

Whatever waits is done in one go. The writer thread does it in one transaction: a group shares one sync of the disk. A job that
is refused (a StoreError, raised before it writes) leaves the others alone; when something else fails, the group is rolled back
and each job is tried by itself, so that it stands for itself only. No job is lost and none is done twice. A job that was sent
without waiting for it, and found the disk full or the file busy, is tried again with the next ones.

Where the disk is quick, waking the thread and being woken by it takes more time than a commit. A caller that is alone may then
have its job done in its own thread (`run(..., here=True)`), if it would not wait for any lock. So may one on a slower disk, if
its task is the only one of its event loop: then nothing could use the time.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event as Signal
from threading import Lock, RLock, Thread, current_thread
from time import monotonic
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from evener.errors import StoreError
from evener.store import protocol
from evener.store.protocol import Finding
from evener.store.sqlite.file import StoreBusy, disconnect, files_of, store_error
from evener.store.sqlite.identity import FileIdentity

if TYPE_CHECKING:
    import sqlite3

__all__ = [
    "Group",
    "Interlock",
    "Job",
    "Perform",
    "StoreIdentity",
    "WalScrubber",
    "WriterJob",
    "WriterThread",
    "make_checked_reads",
    "make_writes_in_turn",
    "perform_freely",
    "perform_reads",
    "perform_writes",
    "read_alone",
]


try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]
else:
    TRY, FREE = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN


PRIVATE = 0o600
LONGEST_NUMBER = 20
DOUBT = 60.0
"""Seconds in which we do not queue again after a wait in vain: the process that is next may have been stopped."""
AWAITED = b"+"
"""Stands behind the number of the process that had its turn last, from when another one waits for its own."""


class Turnstile:
    """The two open lock files. Locks belong to the open files, and the system releases them when the process dies.

    The process whose turn it is holds `.lock`, and the next one holds `.next`. `.lock` also says who had the last turn, and
    whether another process has been waiting since then. Only the holder of `.next` writes that: if it says that we had the
    last turn and no process waits, `.next` need not be checked.
    """

    def __init__(self, path: Path) -> None:
        self._name = f"{os.getpid():<{LONGEST_NUMBER}} ".encode()
        self._next = _open_lock(path.with_name(path.name + ".next"))
        try:
            self._lock = _open_lock(path.with_name(path.name + ".lock"))
        except OSError:
            os.close(self._next)
            raise

    def try_now(self) -> bool:
        """Take the turn if it is free and no process waits for it; else become the next one, if there is none. True if it
        was taken.
        """
        try:
            fcntl.flock(self._lock, TRY)
        except BlockingIOError:
            if self._is_next():
                self._say(AWAITED, LONGEST_NUMBER)
            return False
        if os.pread(self._lock, LONGEST_NUMBER + 1, 0) == self._name:
            return True
        if self._is_next():
            self._sign()
            return True
        fcntl.flock(self._lock, FREE)
        return False

    def wait(self) -> None:
        """Take the turn, however long that takes."""
        fcntl.flock(self._next, fcntl.LOCK_EX)
        self._say(AWAITED, LONGEST_NUMBER)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._sign()

    def _is_next(self) -> bool:
        try:
            fcntl.flock(self._next, TRY)
        except BlockingIOError:
            return False
        return True

    def _sign(self) -> None:
        """Say who has the turn and that none waits, then let another process be next."""
        self._say(self._name, 0)
        fcntl.flock(self._next, FREE)

    def _say(self, what: bytes, place: int) -> None:
        with suppress(OSError):  # no room for it: then the next turn is taken the long way
            os.pwrite(self._lock, what, place)

    def free(self) -> None:
        """Let others have their turn."""
        fcntl.flock(self._lock, FREE)

    def close(self) -> None:
        os.close(self._lock)
        os.close(self._next)


class TurnWait:
    """One wait for a turn, in its own thread, because waiting for a lock has no time limit."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile = turnstile
        self._guard = Lock()
        self._signal = Signal()
        self._given_up = False
        Thread(target=self._stand, name="evener store queue", daemon=True).start()

    def succeeds(self, seconds: float) -> bool:
        """True if the turn came in time. If not, the lock files are closed when it comes."""
        self._signal.wait(seconds)
        with self._guard:
            self._given_up = not self._signal.is_set()
            return not self._given_up

    def _stand(self) -> None:
        self._turnstile.wait()
        with self._guard:
            self._signal.set()
            if self._given_up:
                self._turnstile.close()


class Interlock:
    """Take turns with `with interlock:`; one thread of a process at a time. `patience` is the longest wait, in seconds."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._turnstile: Turnstile | None = None
        self._ours = False
        self._doubtful_until = 0.0

    def __enter__(self) -> None:
        self.enter()

    def enter(self, *, wait: bool = True) -> bool:
        """Wait for our turn. Without lock files, or after too long a wait, continue without it.

        False if it is another process's turn and `wait` is False.
        """
        if fcntl is None:
            return True
        try:
            turnstile = self._turnstile
            if turnstile is None:
                turnstile = self._turnstile = Turnstile(self._path)
            self._ours = turnstile.try_now()
            if not self._ours:
                if not wait:
                    return False
                self._ours = monotonic() > self._doubtful_until and self._wait_for_turn(turnstile)
        except OSError:
            self.close()  # a file system without locks, or without room for one more file
        return True

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Let others have their turn."""
        if self._ours and self._turnstile is not None:
            self._ours = False
            self._turnstile.free()

    def last(self) -> str:
        """Return the number of the process that had its turn last, if that is known."""
        try:
            return self._path.with_name(self._path.name + ".lock").read_text("ascii", "replace")[:LONGEST_NUMBER].strip()
        except OSError:
            return ""

    def close(self) -> None:
        """Close the lock files; the next turn opens them again."""
        if self._turnstile is not None:
            self._turnstile.close()
        self._turnstile, self._ours = None, False

    def _wait_for_turn(self, turnstile: Turnstile) -> bool:
        try:
            wait = TurnWait(turnstile)
        except RuntimeError:  # the interpreter ends, and no thread can be started
            self.close()
            return False
        if wait.succeeds(self._patience):
            return True
        self._turnstile = None  # the thread that still waits has it
        self._doubtful_until = monotonic() + DOUBT
        return False


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)


MOST_IN_A_GROUP = 512
MOST_LEFT = MOST_IN_A_GROUP // 2
LONGEST_FAREWELL = 5.0
"""Seconds that the end of the interpreter waits for what is queued."""
QUICK = 0.005
"""Seconds. While writes take no longer, one may hold up the event loop of a caller that is alone in the store."""
USUAL, STALL = QUICK / 8, QUICK * 10
"""Seconds. On a busy machine a write waits for the processor, which says little of the disk. So several slow ones in a row
count, or one that took as long as a stall; a quick one shows that the disk is quick."""

T = TypeVar("T")
Job = Callable[["sqlite3.Connection"], T]


class WriterJob(Generic[T]):
    """A job, the event loop that gets its answer (none: no answer), and its outcome. `after` runs in the thread when the job
    is committed.
    """

    __slots__ = ("after", "error", "future", "job", "loop", "result")

    def __init__(self, job: Job[T], loop: asyncio.AbstractEventLoop | None, after: Callable[[T], None] | None) -> None:
        self.job = job
        self.loop = loop
        self.future: asyncio.Future[T] | None = loop.create_future() if loop else None
        self.after = after
        self.result: T | None = None
        self.error: StoreError | None = None

    def perform(self, connection: "sqlite3.Connection") -> None:
        """Do the job. What it refuses is kept; what else goes wrong is raised."""
        self.error = None
        try:
            self.result = self.job(connection)
        except StoreError as error:
            _let_go(error)
            self.error = error

    def keep(self) -> None:
        """Run `after`: the job is done for good."""
        if self.error is None and self.after is not None:
            self.after(self.result)  # type: ignore[arg-type]  # a job that was done has its result

    def must_wait(self) -> bool:
        """True if there was no room for it, or no turn, and no caller was told."""
        return self.loop is None and self.error is not None and self.error.retryable

    def deliver(self) -> None:
        """Give the caller its answer, in its own loop. The caller may have left."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]  # as above


Group = list[WriterJob[Any]]
Check = Callable[[], None]
"""Raises StoreGone or StoreLinked when the files are not those that the connection works on."""


class Perform(Protocol):
    """Performs a group of jobs; False if the connection must be replaced."""

    def __call__(self, connection: "sqlite3.Connection", group: Group, path: Path, *, wait: bool = True) -> bool:
        """Do it. Without `wait`, raise StoreBusy before anything is done if another process has a lock."""
        ...


class StoreIdentity(Protocol):
    """The store that a thread uses from its first connection on. `FileIdentity` is the one of a file."""

    def check(self) -> None:
        """Raise when it is not there any more, or another one."""
        ...

    def opened(self) -> None:
        """Note the store of a connection that was opened."""
        ...


class WriterThread:
    """The thread and its queue. It starts with the first job. The code that created it stops it."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], "sqlite3.Connection"],
        perform: Perform,
        identity: StoreIdentity | None = None,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self._identity = identity or FileIdentity(path)
        self._at_end = at_end
        self._connect = connect
        self._perform = perform
        self._queue: SimpleQueue[WriterJob[Any] | None] = SimpleQueue()
        self._lock = RLock()  # a log that is dropped by the garbage collector may call in while we hold it
        self._thread: Thread | None = None
        self._process = os.getpid()
        self._stopped = False
        self._ended = False
        self._farewells: Group = []
        self._left: Group = []  # what was sent and must be tried again
        self._connection: sqlite3.Connection | None = None
        self._turn = Lock()  # its holder may use the connection
        self._waiting = 0  # jobs for the thread that are not done
        self._lasts = USUAL  # seconds that a group takes on this disk

    @property
    def stopped(self) -> bool:
        """True if it takes no more jobs."""
        return self._stopped

    async def run(self, job: Job[T], after: Callable[[T], None] | None = None, *, here: bool = False) -> T:
        """Have the job done, and its result. When the wait is cancelled, the job is done all the same.

        `here`: do it in this thread if writes are quick, or if nothing else in this loop could use the time.
        """
        if here and not self._waiting and (self._lasts <= QUICK or (self._lasts <= STALL and _is_only_task())):
            alone = WriterJob(job, None, after)
            try:
                if self._try_here(alone):
                    if alone.error is not None:
                        raise alone.error
                    return alone.result  # type: ignore[return-value]  # a job that was done has its result
            finally:
                del alone  # an error holds this frame: it must not hold itself, and with it the log that is to be dropped
        return await self.put(job, after)

    def put(self, job: Job[T], after: Callable[[T], None] | None = None) -> "asyncio.Future[T]":
        """Have the job done by the thread; the future of its result."""
        request = WriterJob(job, asyncio.get_running_loop(), after)
        self._put(request)
        assert request.future is not None
        return request.future

    def _try_here(self, request: WriterJob[T]) -> bool:
        """Do the job in the caller's thread. False if it would wait for the thread or for a lock: then nothing is done."""
        if not self._turn.acquire(False):
            return False
        try:
            if self._waiting or self._stopped or self._connection is None or self._process != os.getpid():
                return False
            self._do([request], wait=False)
            if isinstance(request.error, StoreBusy):
                request.error = None
                return False
            return True
        finally:
            self._turn.release()

    def send(self, job: Job[T], after: Callable[[T], None] | None = None) -> None:
        """Have the job done, without an answer. Nothing happens if the thread has stopped."""
        with suppress(StoreError):
            self._put(WriterJob(job, None, after))

    async def end(self) -> None:
        """Take no more jobs, do those that wait, and close the connection."""
        farewell = WriterJob(_do_nothing, asyncio.get_running_loop(), None)
        with self._lock:
            self._farewells.append(farewell)
            self._take_no_more()
            waiting = self._thread is not None and not self._ended and self._process == os.getpid()
        if waiting and farewell.future is not None:
            await farewell.future

    def stop(self) -> None:
        """End the thread as the interpreter ends: wait a bounded time, whatever the thread does."""
        if self._process != os.getpid():
            return  # a forked child: neither the thread nor the connection is its own
        with self._lock:
            self._take_no_more()
        thread = self._thread
        if thread is not None and thread is not current_thread():
            thread.join(LONGEST_FAREWELL)

    def _take_no_more(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._queue.put(None)

    def _put(self, request: WriterJob[T]) -> None:
        if self._process != os.getpid():
            raise StoreError(
                "This store was made before the process forked and cannot be used in the child. Make a new store in the child."
            )
        with self._lock:
            if self._stopped:
                raise protocol.closed()
            if self._thread is None:
                self._thread = Thread(target=self._serve, name="evener store", daemon=True)
                self._thread.start()
            self._waiting += 1
            self._queue.put(request)

    def _serve(self) -> None:
        last = False
        while not last:
            group, last = self._next()
            if group:
                with self._turn:
                    self._do(group)
                self._left = [request for request in group if request.must_wait()][:MOST_LEFT]
                with self._lock:
                    self._waiting = self._queue.qsize() + len(self._left)
                _answer(group)  # the last thing: the loop that it wakes wants to run
            del group  # it holds on to the store, which may be dropped while we wait
        with self._turn:
            if self._connection is not None:
                disconnect(self._connection)
            self._connection = None
        if self._at_end is not None:
            self._at_end()
        with self._lock:
            self._ended = True
            _answer(self._farewells)

    def _next(self) -> tuple[Group, bool]:
        """Return all that waits, at least one; and whether that was the last."""
        queue, found = self._queue, self._queue.get()
        group, self._left = self._left, []
        while found is not None:
            group.append(found)
            if len(group) >= MOST_IN_A_GROUP or queue.empty():
                return group, False
            found = queue.get()
        return group, True

    def _do(self, group: Group, *, wait: bool = True) -> None:
        """Do the group, on a connection to the file that was there at first."""
        began = monotonic()
        sound = False
        try:
            if self._connection is None:
                self._connection = _connection(self._connect, self._identity)
            sound = self._perform(self._connection, group, self.path, wait=wait)
        except StoreBusy as error:
            _fail(group, error, self.path)
            sound = not wait  # nothing was begun
        except Exception as error:
            _fail(group, error, self.path)
        if self._connection is not None and not sound:
            disconnect(self._connection)
            self._connection = None
        took = monotonic() - began
        self._lasts = took if took > STALL else min(took, 2 * max(self._lasts, USUAL))


def _connection(connect: Callable[[], "sqlite3.Connection"], identity: StoreIdentity) -> "sqlite3.Connection":
    identity.check()
    made = connect()
    try:
        identity.opened()
    except StoreError:
        disconnect(made)
        raise
    return made


def read_alone(job: Job[T], *, connect: Callable[[], "sqlite3.Connection"], identity: FileIdentity, path: Path) -> T:
    """Do a job that reads, here and now, on a connection of its own. What it raises is a StoreError."""
    try:
        connection = _connection(connect, identity)
        try:
            request = WriterJob(job, None, None)
            perform_reads(connection, [request], path)
        finally:
            disconnect(connection)
    except Exception as error:
        raise store_error(error, path) from None
    if request.error is not None:
        raise request.error
    return request.result  # type: ignore[return-value]  # a job that was done has its result


def perform_freely(connection: "sqlite3.Connection", group: Group, path: Path, *, wait: bool = True) -> bool:  # noqa: ARG001
    """Perform each job by itself, without a transaction: for what cannot be done within one."""
    for request in group:
        try:
            request.perform(connection)
            request.keep()
        except Exception as error:
            _fail([request], error, path)
    return True


def perform_writes(
    connection: "sqlite3.Connection",
    group: Group,
    path: Path,
    check: Check | None = None,
    *,
    wait: bool = True,  # noqa: ARG001
) -> bool:
    """Perform the group in one transaction; when that fails, each job in its own. The files are checked before and after it."""
    if check is not None:
        check()
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    try:
        for request in group:
            request.perform(connection)
        execute("COMMIT")
    except Exception as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if len(group) == 1:
            _fail(group, error, path)
            return False
        return all([_alone(connection, request, path, check) for request in group])
    if check is not None:
        check()
    for request in group:
        request.keep()
    return True


def make_writes_in_turn(
    interlock: Interlock,
    identity: FileIdentity,
    then: Callable[["sqlite3.Connection"], None],
    key: Callable[["sqlite3.Connection"], None] | None = None,
) -> Perform:
    """Return `perform_writes` for when it is this process's turn to write, with `then` to be called after it.

    `key` raises when the cipher is not that of the store any more.
    """

    def check_of(connection: "sqlite3.Connection") -> Check:
        """Return the check of a connection: its files stay the same."""
        files = files_of(connection)
        if key is None:
            return partial(identity.check_beside, files)

        def check() -> None:
            identity.check_beside(files)
            key(connection)

        return check

    known: sqlite3.Connection | None = None  # the connection of the last write, and its check
    check: Check = identity.check
    hasty = False  # whether it waits for no lock
    patience = 0

    def perform(connection: "sqlite3.Connection", group: Group, path: Path, *, wait: bool = True) -> bool:
        nonlocal known, check, hasty, patience
        if not interlock.enter(wait=wait):
            raise StoreBusy("Another process writes.")
        try:
            if connection is not known:
                known, check, hasty = connection, check_of(connection), False
            if wait is hasty:
                patience, hasty = _set_patience(connection, patience if wait else 0), not wait
            sound = perform_writes(connection, group, path, check)
            if sound:
                then(connection)
            return sound
        except Exception as error:
            raise _name_writer(store_error(error, path), interlock.last()) from None
        finally:
            interlock.leave()

    return perform


def perform_reads(connection: "sqlite3.Connection", group: Group, path: Path, *, wait: bool = True) -> bool:  # noqa: ARG001
    """Perform each job in a transaction of its own that reads: it sees the store as it is at one moment."""
    sound = True
    for request in group:
        try:
            connection.execute("BEGIN")
            request.perform(connection)
            connection.execute("COMMIT")
            request.keep()
        except Exception as error:
            _fail([request], error, path)
            sound = False
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    return sound


def make_checked_reads(identity: FileIdentity) -> Perform:
    """Return `perform_reads` with a check that the files are those that the connection works on."""

    def perform(connection: "sqlite3.Connection", group: Group, path: Path, *, wait: bool = True) -> bool:  # noqa: ARG001
        identity.check_beside(files_of(connection))
        return perform_reads(connection, group, path)

    return perform


class WalScrubber:
    """Empties SQLite's log after an erasure, because it still contains erased content. `left`: it does, as far as known."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.left = False

    def scrub(self, connection: "sqlite3.Connection") -> None:
        """Empty SQLite's write-ahead file, outside of any transaction. Waits for readers as long as the connection does."""
        self.left = True
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self.left = bool(busy)

    def scrub_again(self, connection: "sqlite3.Connection") -> None:
        """Scrub after a write, if it is still due, without waiting. When it fails, the next write tries again."""
        if not self.left:
            return
        import sqlite3

        with suppress(sqlite3.Error):
            patience = _set_patience(connection, 0)
            try:
                self.scrub(connection)
            finally:
                _set_patience(connection, patience)

    def findings(self) -> list[Finding]:
        """Return what `verify` says of it."""
        if not self.left:
            return []
        what = (
            f"Erased content is still in {self._store.name}-wal, because another process read the store meanwhile. One of the "
            "next writes removes it; so does the last process that closes the store."
        )
        return [Finding("", 0, what, damage=False)]


def _set_patience(connection: "sqlite3.Connection", milliseconds: int) -> int:
    """Let the connection wait so long for a lock. Return how long it waited before."""
    (before,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
    return int(before)


def _is_only_task() -> bool:
    """True if no other task is in the event loop. Counting takes time, so this is asked only where the disk is slow."""
    return len(asyncio.all_tasks()) == 1


def _let_go(error: BaseException | None) -> None:
    """Drop what the frames of a refusal hold: a cursor that stays open there would keep the connection at a past moment."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__context__


def _do_nothing(connection: "sqlite3.Connection") -> None:
    pass


def _name_writer(error: StoreError, process: str) -> StoreError:
    """Return the error of a busy store with the process that wrote last."""
    return StoreBusy(f"{error} The last writer was process {process}.") if isinstance(error, StoreBusy) and process else error


def _alone(connection: "sqlite3.Connection", request: WriterJob[Any], path: Path, check: Check | None) -> bool:
    try:
        return perform_writes(connection, [request], path, check)
    except Exception as error:
        _fail([request], error, path)
        return False


def _fail(group: Group, error: Exception, path: Path) -> None:
    for request in group:
        request.error = store_error(error, path)


def _answer(group: Group) -> None:
    """Wake each loop once. In a loop that is gone no caller waits."""
    if len(group) == 1 and group[0].loop is not None:  # nearly always
        with suppress(RuntimeError):
            group[0].loop.call_soon_threadsafe(group[0].deliver)
        return
    waiting: dict[asyncio.AbstractEventLoop, Group] = {}
    for request in group:
        if request.loop is not None:
            waiting.setdefault(request.loop, []).append(request)
    for loop, answered in waiting.items():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_deliver, answered)


def _deliver(answered: Group) -> None:
    for request in answered:
        request.deliver()
