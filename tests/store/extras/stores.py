"""What these tests share: every store there is, small conversations, and the raw bytes of whatever a store left on the disk."""

from collections.abc import Callable
from pathlib import Path

from evener.events import CallFinished, Opened, Prompted, Replied
from evener.store import MemoryStore, SqliteStore
from evener.store.postgres import PostgresStore
from evener.transcript import Message, TextBlock
from evener.transcript.reply import Stop
from tests.store.extras.toycipher import ToyCipher
from tests.store.stores import LEASE, Clock, new_schema, postgres

KEY = b"a key for tests"

AnyStore = MemoryStore | SqliteStore | PostgresStore
Make = Callable[[Path, Clock], AnyStore]
KINDS: dict[str, Make] = {
    "memory": lambda _, clock: MemoryStore(lease=LEASE, clock=clock),
    "sqlite": lambda folder, clock: SqliteStore(folder / "evener.db", lease=LEASE, clock=clock),
    "sealed": lambda folder, clock: SqliteStore(folder / "sealed.db", lease=LEASE, clock=clock, cipher=ToyCipher(KEY)),
    "postgres": lambda _, clock: PostgresStore(postgres().address, schema=new_schema(), lease=LEASE, clock=clock),
}


def asked(text: str, at: float = 2.0) -> Prompted:
    return Prompted(at=at, run="r", message=Message("user", (TextBlock(text),), f"u{at}", created_at=None))


def answered(text: str, at: float = 3.0) -> Replied:
    return Replied(at=at, message=Message("assistant", (TextBlock(text),), f"a{at}", created_at=None), stop=Stop("done"))


def returned(text: str, at: float = 4.0) -> CallFinished:
    return CallFinished(at=at, call="c", ok=True, content=(TextBlock(text),))


async def fork_of(store: AnyStore, log: str, seq: int, name: str) -> None:
    """A new log that goes on after an event of another."""
    link = await store.link(log, seq)
    [summary] = [summary for summary in await store.logs() if summary.log == log]
    first = Opened(at=5.0, thread=summary.thread, harness="h", parent=link.log, parent_seq=link.seq, parent_hash=link.hash)
    await (await store.create(name, first, holder="me")).aclose()


def leftovers(folder: Path) -> bytes:
    """The bytes of every file in a folder."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
