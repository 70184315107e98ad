"""The event store: logs, leases, inboxes and blobs. Importing it does not load SQLite: that waits for the first use."""

from evener.store.log import Lease, LeaseHeld, LeaseLost, Log, Note, Store, Summary
from evener.store.memory import MemoryStore
from evener.store.sqlite import SqliteStore

__all__ = [
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Log",
    "MemoryStore",
    "Note",
    "SqliteStore",
    "Store",
    "Summary",
]
