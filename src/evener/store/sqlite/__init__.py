"""A store in one SQLite file: durable at each commit, shared by processes. SQLite is loaded when it is first used."""

from evener.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
