"""Connections to a PostgreSQL server: how they are made, what their errors mean, and the shape that the SQL jobs expect.

The jobs of `store/sqlite` are written for `sqlite3.Connection`: `execute` with `?` for values. A `PostgresConnection` has that
shape, so that one set of jobs serves both stores. An address, and so a password, stands in no error and no log.
"""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from evener.errors import StoreError, UsageError
from evener.store.postgres.arrays import let_pass
from evener.store.postgres.schema import upgrade
from evener.store.protocol import Damaged
from evener.store.sqlite.file import SAFE, StoreBusy, StoreFull
from evener.transport.secrets import note_secret

if TYPE_CHECKING:
    import psycopg
    from psycopg_pool import ConnectionPool


PAUSE = 0.05
LONGEST_PAUSE = 1.0
MOST_IDLE = 5.0
"""Seconds after which the server ends a transaction that does nothing: a process that was stopped in one holds up others."""
LONGEST_STATEMENT = 300.0
NAME = "evener"
TOO_MANY = "53300"
PASSWORDS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
UNFIT = "22021"


class StoreUnreachable(StoreError):
    """The server did not answer, or ended the connection. What was acknowledged is safe."""

    retryable = True


# By the class of the SQLSTATE, or the whole of it.
TABLE: dict[str, tuple[type[StoreError], str, str]] = {
    "53100": (StoreFull, "has no room left", "Free some space on the server and try again."),
    "53": (StoreBusy, "is short of memory or connections", "Try again; if it stays so, raise the limits of the server."),
    "40": (StoreBusy, "found a conflict between two writers", "Try again."),
    "55P03": (StoreBusy, "was locked by another connection for too long", "Try again."),
    "57014": (StoreBusy, "cancelled a statement that took too long", "Try again; if it stays so, look at the server's load."),
    "42501": (
        StoreError,
        "does not grant this role the rights for that",
        "Give the role the rights that docs/scale.md lists, or use another role.",
    ),
    "0A": (
        StoreError,
        "is behind a pooler that takes no `options` in an address",
        "Leave them out, or have it ignore them (PgBouncer: ignore_startup_parameters = options).",
    ),
    **dict.fromkeys(
        ("42P05", "26000"),
        (
            StoreError,
            "is behind a pooler that gives a client the statements that another client prepared",
            "Have it keep and reset sessions (PgBouncer: pool_mode = session, server_reset_query = DISCARD ALL).",
        ),
    ),
    **dict.fromkeys(
        ("42P07", "42P01", "42703"),
        (
            StoreError,
            "has tables in this schema that are not those of Evener",
            "Give a schema of its own: PostgresStore(..., schema=...).",
        ),
    ),
    "28": (StoreError, "does not let this user in", "Check user and password in the address."),
    "3D": (StoreError, "has no database of that name", "Make the database, or correct the address."),
    "25006": (StoreBusy, "can only be read", "Give the address of the primary server, or try again when it may be written."),
    "XX": (Damaged, "is damaged", "Stop the server and look at its log; restore a backup if needed."),
    "22P05": (StoreError, "has an encoding without some of these characters", "Use a database with the encoding UTF8."),
    UNFIT: (StoreError, "cannot hold NUL or a lone surrogate in an id, a name or a key", "Leave that character out."),
    "22": (StoreError, "cannot hold such a value", "Keep the content as a file and store its name."),
    "54": (StoreError, "cannot hold a value that large", "Keep the content as a file and store its name."),
}
OTHER = (StoreError, "could not do what was asked", "Try again; if it stays so, look at the server's log.")


LOOKS = 8
"""How often a pooler is asked. While others use it, it may by chance answer once as in session mode."""
POOLED = (
    "The address is that of a pooler that serves each transaction or statement by another session of the PostgreSQL server. "
    f"{SAFE} Set the pooler's mode for this database to session (PgBouncer: pool_mode = session), or give the address of the "
    "server itself."
)


# What a server says before there is a connection, for which libpq has no SQLSTATE. A server of another language goes unread.
REFUSALS = tuple(
    (re.compile(words), code)
    for words, code in (
        ("too many connections|too many clients|connection slots|no more connections allowed", TOO_MANY),
        ("unsupported startup parameter", "0A000"),
        ("FATAL: +database .* does not exist", "3D000"),
        ("FATAL: +permission denied for database", "42501"),
        (r"no password supplied|FATAL: .*(authentication|password|role|pg_hba\.conf)", "28000"),
    )
)


@cache
def load_psycopg() -> Any:
    """Return the library. UsageError when it is not installed."""
    try:
        import psycopg
        import psycopg.rows
    except ImportError:
        raise UsageError(
            "A store on PostgreSQL needs the extra `postgres`. Install it: pip install 'evener[postgres]'."
        ) from None
    logging.getLogger("psycopg").addHandler(logging.NullHandler())  # it reports to its caller, not to the user's terminal
    return psycopg


def check_address(address: str) -> str:
    """Return the address. UsageError for what is none, which shows nothing of it: a password may be a part.

    The password is noted: what this process writes to a store or a trace does not hold it.
    """
    psycopg = load_psycopg()
    try:
        parts = psycopg.conninfo.conninfo_to_dict(address)
        note_secret(*(str(parts[name]) for name in PASSWORDS if parts.get(name)))
        sound = str(parts.get("port", "")).replace(",", "").strip().isdecimal() or not parts.get("port")
    except (psycopg.Error, TypeError, AttributeError):
        sound = False
    if not sound:
        address, parts = "", {}  # a traceback may be printed with its locals
        raise UsageError(
            "This is not the address of a PostgreSQL database. Write postgresql://user@host:5432/database, and percent-encode "
            "/ @ : and # in the user and the password (%2F for a slash)."
        )
    return address


def _code(error: "psycopg.Error") -> str:
    """Return the SQLSTATE, also of a connection that the server refused and of a text that psycopg did not send; else empty."""
    if error.sqlstate:
        return error.sqlstate
    if isinstance(error, load_psycopg().DataError):
        return UNFIT
    return next((code for words, code in REFUSALS if words.search(str(error))), "")


def was_lost(error: Exception) -> bool:
    """True if the connection is gone, so that it is unknown whether the last commit was made."""
    psycopg = load_psycopg()
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    code = _code(error)
    return not code or (code[:2] in ("08", "57") and code != "57014") or code == "25P03"


def postgres_error(error: Exception) -> StoreError:
    """Return the StoreError for the caller. One of ours passes as it is."""
    if isinstance(error, StoreError):
        return error
    psycopg = load_psycopg()
    if isinstance(error, UnicodeEncodeError):
        error = psycopg.DataError()
    if not isinstance(error, psycopg.Error):
        return StoreError(f"The PostgreSQL store {OTHER[1]} ({type(error).__name__}: {error}). {SAFE} {OTHER[2]}")
    if was_lost(error):
        return StoreUnreachable(
            "The PostgreSQL server did not answer or ended the connection. What was acknowledged before is safe. "
            "Check that it runs and that the address is right, then try again."
        )
    code = _code(error)
    kind, happened, advice = TABLE.get(code) or TABLE.get(code[:2]) or OTHER
    return kind(f"The PostgreSQL store {happened} (SQLSTATE {code}). {SAFE} {advice}")


def _backend(connection: "psycopg.Connection") -> int:
    """Return the process id of the server's process that serves the connection now."""
    found = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    return int(found[0]) if found else 0


class Dial:
    """Makes connections to one schema of one database. `patience` is the maximum wait for the server, or for a lock, in
    seconds.
    """

    def __init__(self, address: str, schema: str, patience: float) -> None:
        self._address = address
        self._schema = schema
        self.patience = patience
        self._upgraded = False

    def settings(self) -> dict[str, Any]:
        """Return what each connection is made with, but for the address."""
        return {
            "autocommit": True,
            "connect_timeout": max(2, round(self.patience)),
            "application_name": NAME,
            "client_encoding": "UTF8",  # whatever the database's own: texts are made and read as UTF-8
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
        }

    def prepare(self, made: "psycopg.Connection") -> None:
        """Set what the session must have. A statement does that: poolers refuse or ignore `options` of a new connection."""
        wanted = {
            "search_path": self._schema,
            "synchronous_commit": "on",  # whatever the server's default: an append is durable when it returns
            "extra_float_digits": "3",  # or times are rounded when they are read, and do not fit the chain
            "lock_timeout": f"{self.patience * 1000:.0f}",
            "statement_timeout": f"{LONGEST_STATEMENT * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{MOST_IDLE * 1000:.0f}",
            "client_min_messages": "error",
        }
        each = ", ".join(["set_config(%s, %s, false)"] * len(wanted))
        made.execute(f"SELECT {each}".encode(), [word for pair in wanted.items() for word in pair])

    def __call__(self) -> "psycopg.Connection":
        """Connect, once. Raises what psycopg raises."""
        made: psycopg.Connection = load_psycopg().connect(self._address, **self.settings())
        try:
            self.prepare(made)
            if not self._upgraded:
                self._check_session(made)
                upgrade(made, self._schema)
                self._upgraded = True
            let_pass(made)
        except BaseException:
            made.close()
            raise
        return made

    def _check_session(self, made: "psycopg.Connection") -> None:
        """Refuse a pooler that serves each transaction by any session: what `prepare` set is not there, or is another client's.

        The process id that a pooler gives a connection is not that of the server's process. In session mode a connection keeps
        its process of the server, and no other connection has it.
        """
        first = _backend(made)
        if first == made.info.backend_pid:
            return
        with load_psycopg().connect(self._address, **self.settings()) as other:
            self.prepare(other)
            second = _backend(other)
            for _ in range(LOOKS):
                if first == second or _backend(made) != first or _backend(other) != second:
                    raise StoreError(POOLED)

    def pool(self, size: int) -> "ConnectionPool[Any]":
        """Return a pool of connections that are made as they are needed. Its maker closes it."""
        from psycopg_pool import ConnectionPool

        if not self._upgraded:
            self.persist().close()  # the tables are there
        return ConnectionPool(
            self._address,
            kwargs=self.settings(),
            configure=self.prepare,
            min_size=0,
            max_size=size,
            timeout=self.patience,
            reconnect_timeout=self.patience,  # each try waits twice as long as the last, after a long outage for minutes
            open=True,
        )

    def persist(self) -> "psycopg.Connection":
        """Connect, however often that takes within the patience: a server that restarts is back in a moment."""
        made: psycopg.Connection = persist(self, self.patience)
        return made


def persist(work: Callable[[], Any], patience: float) -> Any:
    """Do what can be done again, until the server answers or `patience` seconds have passed."""
    deadline, pause = monotonic() + patience, PAUSE
    while True:
        try:
            return work()
        except load_psycopg().Error as error:
            passes, failure = was_lost(error) or _code(error) == TOO_MANY, postgres_error(error)
        if not passes or monotonic() + pause > deadline:
            raise failure  # outside the handler: frames of its cause hold the address
        sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


@cache
def _translate(statement: str) -> bytes:
    return statement.replace("%", "%%").replace("?", "%s").encode()


class PostgresConnection:
    """One connection in the shape of `sqlite3.Connection`. `raw` is psycopg's; `reconnect` replaces it.

    `committing`: a COMMIT was sent for the present write. If the connection breaks then, the outcome is unknown.
    """

    def __init__(self, dial: Dial, raw: "psycopg.Connection | None" = None) -> None:
        self._dial = dial
        self.raw = raw or dial.persist()
        self.committing = False

    def execute(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Execute one statement; a cursor."""
        return self.raw.execute(_translate(statement), values)

    def executemany(self, statement: str, several: Iterable[Sequence[object]]) -> None:
        """Execute one statement for each of the values."""
        rows = list(several)
        if rows:
            with self.raw.cursor() as cursor:
                cursor.executemany(_translate(statement), rows)

    @property
    def in_transaction(self) -> bool:
        """True if a transaction was begun."""
        return bool(self.raw.info.transaction_status)

    def roll_back(self) -> None:
        """End a transaction that failed, if the connection is still there."""
        if not self.raw.closed and self.in_transaction:
            self.raw.rollback()

    def reconnect(self) -> None:
        """Connect anew. StoreUnreachable when the server does not come back in time."""
        self.close()
        self.raw = self._dial.persist()

    def close(self) -> None:
        """Close it."""
        self.raw.close()
