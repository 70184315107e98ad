"""The store on a PostgreSQL server, for several machines. Importing it does not load psycopg: that waits for the first use."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evener.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("evener.store.postgres.store"), name)
    raise AttributeError(name)
