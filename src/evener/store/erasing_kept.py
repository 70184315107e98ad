"""Erasing in memory: what events say is replaced by blanks, and the blobs that nobody names any more go. As in SQLite."""

from collections.abc import Mapping, MutableMapping, Sequence

from evener.events import decode_event, encode_event
from evener.store import refusals
from evener.store.blanking import blanked
from evener.store.erasing import named_in
from evener.store.kept import Kept

__all__ = ["erase_events", "erase_logs"]


def erase_events(logs: Mapping[str, Kept], log: Kept, seqs: set[int], blobs: MutableMapping[str, bytes]) -> int:
    """Erase events of the log's path; how many. Refuses numbers that are not there before it changes anything."""
    for seq in sorted(seqs):
        log.link(seq)
    named = {name for line in log.path(0, log.length) for name in named_in(line)}
    erased, piece = 0, log
    while seqs:
        erased += piece.blank(seqs, _blank)
        seqs = {seq for seq in seqs if seq <= piece.base}
        piece = piece.parent or piece
    _drop(named, logs, blobs)
    return erased


def erase_logs(logs: Mapping[str, Kept], wanted: Sequence[Kept], now: float, blobs: MutableMapping[str, bytes]) -> int:
    """Erase everything of some of the logs; how many events. Refuses while somebody holds one of them."""
    for kept in wanted:
        if kept.until > now:
            raise refusals.held(kept.log, kept.holder, kept.until - now)
    named = {found for kept in wanted for found in named_in(bytes(kept.lines))}
    erased = sum(kept.blank(range(kept.base + 1, kept.length + 1), _blank) for kept in wanted)
    for kept in wanted:
        kept.erased = now if kept.erased is None else kept.erased
        kept.epoch, kept.holder = kept.epoch + 1, ""
        kept.keys, kept.unsettled = set(), {}
    _drop(named, logs, blobs)
    return erased


def _drop(named: set[str], logs: Mapping[str, Kept], blobs: MutableMapping[str, bytes]) -> None:
    """Let go of those of the blobs that no event names any more."""
    if gone := named & blobs.keys():
        for name in gone.difference(*(named_in(bytes(kept.lines)) for kept in logs.values())):
            del blobs[name]


def _blank(line: bytes) -> bytes:
    return encode_event(blanked(decode_event(line)))
