"""The event store: logs, leases, inboxes and blobs. Importing it does not load SQLite: that waits for the first use."""

from evener.store.cipher import Cipher, WrongCipher
from evener.store.funnel import Funnel
from evener.store.jsonl import export_lines, file_lines, import_lines
from evener.store.keeping import Spared, Sweep, keep
from evener.store.log import (
    Damaged,
    Erased,
    Finding,
    Found,
    Hits,
    Lease,
    LeaseHeld,
    LeaseLost,
    Link,
    Log,
    NoLog,
    Note,
    Store,
    Summary,
)
from evener.store.memory import MemoryStore
from evener.store.rekeying import rekey
from evener.store.sqlite import SqliteStore

__all__ = [
    "Cipher",
    "Damaged",
    "Erased",
    "Finding",
    "Found",
    "Funnel",
    "Hits",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Link",
    "Log",
    "MemoryStore",
    "NoLog",
    "Note",
    "Spared",
    "SqliteStore",
    "Store",
    "Summary",
    "Sweep",
    "WrongCipher",
    "export_lines",
    "file_lines",
    "import_lines",
    "keep",
    "rekey",
]
