"""What both stores refuse, in the same words. Only builds errors; nothing is stored or changed when one is raised."""

from datetime import UTC, datetime

from evener.errors import StoreError
from evener.store.log import Damaged, Erased, LeaseHeld, LeaseLost, NoLog

__all__ = [
    "already_there",
    "another_hash",
    "another_thread",
    "closed",
    "damaged",
    "erased",
    "given_back",
    "held",
    "incomplete",
    "lost",
    "no_blob",
    "no_event",
    "no_log",
    "no_note",
    "spoiled_blob",
]


def no_log(log: str) -> NoLog:
    return NoLog(f"There is no log {log!r} in this store. Check the id, and that this is the store it was made in.")


def already_there(log: str) -> StoreError:
    return StoreError(
        f"The log {log!r} exists already, and nothing was written. Open it instead, or give the new one another id."
    )


def held(log: str, holder: str, seconds: float) -> LeaseHeld:
    return LeaseHeld(
        f"The log {log!r} is being written by {holder!r}, whose lease runs for {seconds:.0f} more seconds unless renewed. "
        "Wait for it (give `patience`), stop that run, or fork the thread. With `force` it is taken over all the same."
    )


def lost(log: str, holder: str) -> LeaseLost:
    who = repr(holder) if holder else "Somebody else"
    return LeaseLost(
        f"{who} took over the log {log!r}, so this was not written. What was acknowledged before is safe. "
        "Open the log again to go on."
    )


def given_back(log: str) -> LeaseLost:
    return LeaseLost(f"The log {log!r} was closed here, so this was not written. Open it again to go on.")


def closed() -> StoreError:
    return StoreError("This store is closed. What was acknowledged is safe. Make a new store on the same file to go on.")


def no_note(log: str, number: int) -> StoreError:
    return StoreError(
        f"Note {number} of the log {log!r} is not there or settled already, so nothing was written. Read the notes again."
    )


def no_blob(digest: str) -> StoreError:
    return StoreError(
        f"There is no blob {digest!r} in this store. Check that it was put there, and that it has not been erased."
    )


def spoiled_blob(digest: str) -> Damaged:
    return Damaged(
        f"The blob {digest!r} is not what was stored: its bytes have another SHA-256. "
        "Put the same content again to mend it, or restore the store from a backup."
    )


def incomplete(log: str, seq: int, digest: str) -> Damaged:
    return Damaged(
        f"Event {seq} of the log {log!r} has a part of an output only, and the blob {digest!r} with the whole is not in the "
        "store, so this export is not complete. Restore the store from a backup, or erase that event and export again."
    )


def no_event(log: str, seq: int) -> StoreError:
    return StoreError(
        f"The log {log!r} has no event {seq} of its own, so nothing was done. Ask `link` for the log in which that event lies."
    )


def another_hash(log: str, seq: int) -> StoreError:
    return StoreError(
        f"Event {seq} of the log {log!r} has another hash than the fork names, so nothing was written. "
        "Ask `link` for the hash of the event."
    )


def another_thread(log: str, owner: str, thread: str) -> StoreError:
    return StoreError(
        f"The log {log!r} belongs to the thread {owner!r} and not to {thread!r}, so nothing was written. "
        "Give a log of the thread, or the thread of the log."
    )


def erased(log: str, when: float) -> Erased:
    day = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Erased(f"The log {log!r} was erased on {day}: what it said is gone for good. Begin a new thread.")


def damaged(log: str, seq: int) -> Damaged:
    return Damaged(
        f"The log {log!r} is damaged at event {seq}: it is missing, or not what was written. Nothing was changed. "
        "Run `evener verify` to see how much is affected, and restore a backup if there is one."
    )
