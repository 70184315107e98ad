"""The store on a PostgreSQL server, for several machines. Importing it does not load psycopg: that waits for the first use."""

from evener.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
