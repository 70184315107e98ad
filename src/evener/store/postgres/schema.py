"""The tables of a store in PostgreSQL, their creation and upgrades, and the minimum rights of each role.

The columns are those of the SQLite file, so that the same jobs read and write both. docs/scale.md describes them.
"""

from collections.abc import Sequence
from time import time
from typing import TYPE_CHECKING

from evener.errors import BadValue, StoreError
from evener.store.postgres import budgets, rates, schedules, work

if TYPE_CHECKING:
    import psycopg


FIRST = (
    "CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL)",
    """
    CREATE TABLE logs (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        log text NOT NULL UNIQUE,
        thread text NOT NULL,
        harness text NOT NULL,
        parent text NOT NULL,
        parent_seq bigint NOT NULL,
        parent_hash text NOT NULL,
        began double precision NOT NULL,
        changed double precision NOT NULL,
        length bigint NOT NULL,
        head bytea NOT NULL,
        epoch bigint NOT NULL,
        holder text NOT NULL,
        claim text NOT NULL,
        lease_until double precision NOT NULL,
        base bigint NOT NULL DEFAULT 0,
        title text NOT NULL DEFAULT '',
        erased double precision
    ) WITH (fillfactor = 50)
    """,  # an append updates its row in place: half of a page is left for that
    "CREATE INDEX logs_of_thread ON logs (thread)",
    """
    CREATE TABLE events (
        id bigint GENERATED ALWAYS AS IDENTITY,
        log bigint NOT NULL REFERENCES logs (number),
        seq bigint NOT NULL,
        version integer NOT NULL,
        rule integer NOT NULL,
        at double precision NOT NULL,
        kind text NOT NULL,
        digest bytea NOT NULL,
        chain bytea NOT NULL,
        payload bytea,
        erased double precision,
        stone bytea,
        PRIMARY KEY (log, seq)
    )
    """,
    "CREATE UNIQUE INDEX events_by_arrival ON events (id)",
    """
    CREATE TABLE inbox (
        log bigint NOT NULL REFERENCES logs (number),
        number bigint NOT NULL,
        key text NOT NULL,
        kind text NOT NULL,
        body text NOT NULL,
        settled bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (log, number),
        UNIQUE (log, key)
    )
    """,
    "CREATE INDEX inbox_unsettled ON inbox (log, number) WHERE settled = 0",
    "CREATE TABLE blobs (digest text PRIMARY KEY, size bigint NOT NULL, content bytea NOT NULL)",
    "CREATE TABLE heads (thread text PRIMARY KEY, log text NOT NULL)",
    "CREATE TABLE tags (thread text NOT NULL, tag text NOT NULL, PRIMARY KEY (thread, tag))",
    """
    CREATE TABLE checkpoints (
        log bigint PRIMARY KEY REFERENCES logs (number),
        seq bigint NOT NULL,
        chain bytea NOT NULL,
        at double precision NOT NULL
    )
    """,
    "INSERT INTO meta VALUES ('store', encode(sha256(random()::text::bytea || clock_timestamp()::text::bytea), 'hex'))",
)

SHARED = (*work.TURNS, *schedules.TABLE, *budgets.TABLES, *rates.TABLES)

UNCHECKED = ("ALTER TABLE events DROP CONSTRAINT events_log_fkey",)
"""An append has locked the row of its log when it adds events: a check of each event would find what we know."""

STEPS: tuple[tuple[str, ...], ...] = (FIRST, work.TABLE, SHARED, UNCHECKED)
"""Step n makes version n+1 of version n. A step, once released, is never changed."""

VERSION = len(STEPS)
CHANGED = (
    *("logs", "inbox", "blobs", "heads", "checkpoints", "meta"),
    *("work", "schedules", "budgets", "members", "reservations", "rate_calls", "rate_pauses"),
)
EMPTIED = ("inbox", "tags", "blobs", "work", "schedules", "budgets", "members", "reservations", "rate_calls")
LONGEST = 56
"""Characters of a name: a name of PostgreSQL has up to 63, and the channel of our notices adds some."""
GATE = 0x45764E72
"""The advisory lock under which one process at a time makes or upgrades the tables: `EvNr`."""


def check_schema(name: str) -> str:
    """Return the name of a schema, which stands in statements as it is. BadValue for any but a plain one."""
    if not (isinstance(name, str) and name.isascii() and name.isidentifier() and name == name.lower() and len(name) <= LONGEST):
        raise BadValue(
            f"The schema {name!r:.80} must be up to {LONGEST} lower-case letters, digits and underscores, as in 'evener'."
        )
    return name


def upgrade(connection: "psycopg.Connection", schema: str, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Bring the tables to the newest version, in one transaction: all steps or none. A role that may only use them need not."""
    if _version(connection, schema, len(steps)) == len(steps):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (GATE,))
        version = _version(connection, schema, len(steps))  # again: another process may have been quicker
        # Not with IF NOT EXISTS: that needs the right to make one even where there is one.
        if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() is None:
            connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
        for statement in (statement for step in steps[version:] for statement in step):
            connection.execute(statement.encode())
        if not version:
            connection.execute("INSERT INTO meta VALUES ('created_at', %s)", (f"{time():.3f}",))
        connection.execute(
            "INSERT INTO meta VALUES ('schema', %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (str(len(steps)),),
        )


def _version(connection: "psycopg.Connection", schema: str, newest: int) -> int:
    """Return the version of the tables; 0 when there are none. Refuses those of a newer Evener."""
    there = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'meta'"  # `to_regclass` may answer from a cache
    if connection.execute(there, (schema,)).fetchone() is None:
        return 0
    # By its whole name: a schema that the role may not use is left out of the path, as if there were no table.
    found = connection.execute(f"SELECT value FROM \"{schema}\".meta WHERE key = 'schema'".encode()).fetchone()
    version = int(found[0]) if found and str(found[0]).isdecimal() else 0
    if version > newest:
        raise StoreError(
            f"The schema {schema!r} has version {version}, and this Evener knows versions up to {newest}. "
            "Nothing was changed. Update Evener, or give another database."
        )
    return version


def _quote(role: str) -> str:
    """Return the name of a role, whatever it is, as it stands in a statement."""
    return '"' + role.replace('"', '""') + '"'


def grants(schema: str, *, worker: str, reader: str) -> tuple[str, ...]:
    """Return the statements that give two roles the least they need, once the owner has made the tables.

    The worker appends and can change nothing of an event but what erasing changes; the reader only looks.
    """
    name, works, reads = f'"{check_schema(schema)}"', _quote(worker), _quote(reader)
    return (
        f"GRANT USAGE ON SCHEMA {name} TO {works}, {reads}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {works}, {reads}",
        f"GRANT INSERT ON ALL TABLES IN SCHEMA {name} TO {works}",
        f"GRANT UPDATE (payload, erased, stone) ON {name}.events TO {works}",
        *(f"GRANT UPDATE ON {name}.{table} TO {works}" for table in CHANGED),
        *(f"GRANT DELETE ON {name}.{table} TO {works}" for table in EMPTIED),
    )
