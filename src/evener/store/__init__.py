"""The event store: logs, leases, inboxes and blobs. Importing it does not load SQLite: that waits for the first use."""

from evener.store.cipher import Cipher, WrongCipher
from evener.store.memory import MemoryStore
from evener.store.protocol import (
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
from evener.store.redaction import Funnel
from evener.store.retention import Spared, Sweep, keep
from evener.store.sqlite.rekey import rekey
from evener.store.sqlite.store import SqliteStore
from evener.store.transfer.jsonl import export_lines, file_lines, import_lines

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
