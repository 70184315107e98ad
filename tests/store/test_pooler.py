"""A store behind a pooler: one that keeps a session for each client serves it, any other is refused before it writes."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from evener.errors import StoreError
from evener.store.postgres import PostgresStore
from tests.store.stores import new_schema, opened, postgres, run, said, texts

SOCKET = ".s.PGSQL.5432"


class Stream(Protocol):
    """A connection, as far as messages are read from it and written to it."""

    def read(self, size: int, /) -> bytes: ...
    def write(self, data: bytes, /) -> int: ...
    def flush(self) -> None: ...


Session = tuple[Stream, bytes, threading.Lock]
"""A connection to the server, how the server greeted it, and who uses it now."""


def read_message(stream: Stream) -> bytes:
    """Return the next message of the protocol; empty at the end."""
    head = stream.read(5)
    return head + stream.read(struct.unpack(">I", head[1:])[0] - 4) if len(head) == 5 else b""


def read_until(stream: Stream, kinds: bytes) -> bytes:
    """Return all messages up to one of these kinds, with it; empty at the end."""
    read = b""
    while message := read_message(stream):
        read += message
        if message[:1] in kinds:
            return read
    return b""


class Pooler:
    """Passes messages on as a pooler does. `shared`: all clients have one session, each for a transaction at a time.

    `reused`: a client gets the session of one that has left, as it was left. With a `refusal` it answers each new client with
    that.
    """

    def __init__(self, place: Path, *, shared: bool, reused: bool, refusal: str) -> None:
        self._shared = shared
        self._reused = reused
        self._left: list[Session] = []
        self._refusal = refusal.encode()
        self._sessions: list[Session] = []
        self._open = ExitStack()
        self._door = self._open.enter_context(socket.socket(socket.AF_UNIX))
        self._door.bind(str(place / SOCKET))
        self._door.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._open.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _session(self, startup: bytes) -> Session:
        if self._left:
            return self._left.pop()
        if not (self._shared and self._sessions):
            there = self._open.enter_context(socket.socket(socket.AF_UNIX))
            there.connect(str(postgres().folder / SOCKET))
            stream = self._open.enter_context(there.makefile("rwb"))
            stream.write(startup)
            stream.flush()
            greeting = read_until(stream, b"Z")
            key = greeting.index(b"K" + struct.pack(">I", 12)) + 5
            self._sessions.append((stream, greeting[:key] + b"\0\0\0\1" + greeting[key + 4 :], threading.Lock()))
        return self._sessions[-1]

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rwb") as near:
            size = near.read(4)
            startup = size + near.read(struct.unpack(">I", size)[0] - 4)
            if self._refusal:
                fields = b"SFATAL\0C08P01\0M" + self._refusal + b"\0\0"
                near.write(b"E" + struct.pack(">I", len(fields) + 4) + fields)
                return
            session = server, greeting, turn = self._session(startup)
            near.write(greeting)
            near.flush()
            while asked := read_until(near, b"QSX"):
                if asked[:1] == b"X":
                    self._left += [session] if self._reused else []
                    return
                with turn:
                    self._pass_on(asked, near, server)

    def _pass_on(self, asked: bytes, near: Stream, server: Stream) -> None:
        while asked:
            server.write(asked)
            server.flush()
            answer = read_until(server, b"Z")
            near.write(answer)
            near.flush()
            asked = read_until(near, b"QS") if answer[-1:] == b"T" else b""


@contextmanager
def pooled(place: Path, *, shared: bool = False, reused: bool = False, refusal: str = "") -> Iterator[str]:
    """The address of a pooler before the server."""
    pooler = Pooler(place, shared=shared, reused=reused, refusal=refusal)
    try:
        yield f"postgresql://postgres@/postgres?host={place}"
    finally:
        pooler.close()


def test_a_pooler_that_keeps_sessions_serves_a_store(tmp_path: Path) -> None:
    async def scenario(address: str) -> None:
        store = PostgresStore(address, schema=new_schema())
        log = await store.create("a", opened("a"), holder="me")
        await log.append(said("one"))
        await log.aclose()
        assert texts(await store.read("a")) == ["one"]
        assert await store.verify() == []
        await store.aclose()

    with pooled(tmp_path) as address:
        run(scenario(address))


def test_a_pooler_that_shares_sessions_is_refused_before_it_makes_a_table(tmp_path: Path) -> None:
    async def scenario(address: str, schema: str) -> None:
        store = PostgresStore(address, schema=schema)
        with pytest.raises(StoreError, match="pool_mode = session") as writing:
            await store.create("a", opened("a"), holder="me")
        with pytest.raises(StoreError, match="pool_mode = session"):
            await store.read("a")
        assert not writing.value.retryable
        await store.aclose()
        import psycopg

        with psycopg.connect(postgres().address) as connection:
            assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() is None

    with pooled(tmp_path, shared=True) as address:
        run(scenario(address, new_schema()))


def test_a_pooler_that_resets_no_session_is_named_as_the_reason(tmp_path: Path) -> None:
    async def scenario(address: str, schema: str) -> None:
        for name in ("first", "second", "third"):
            store = PostgresStore(address, schema=schema)
            log = await store.create(name, opened(name), holder="me")
            try:
                for number in range(10):  # a statement is prepared when it has been used five times
                    await log.append(said(f"{number}"))
            finally:
                await store.aclose()

    with pooled(tmp_path, reused=True) as address, pytest.raises(StoreError, match="server_reset_query = DISCARD ALL"):
        run(scenario(address, new_schema()))


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        ("unsupported startup parameter: options", "ignore_startup_parameters"),
        ("no more connections allowed (max_client_conn)", "short of memory or connections"),
    ],
)
def test_what_a_pooler_refuses_is_not_taken_for_a_server_that_is_away(tmp_path: Path, refusal: str, told: str) -> None:
    async def scenario(address: str) -> None:
        store = PostgresStore(address, busy=0.1)
        with pytest.raises(StoreError, match=told):
            await store.read("a")
        await store.aclose()

    with pooled(tmp_path, refusal=refusal) as address:
        run(scenario(address))
