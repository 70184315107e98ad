"""Threads that leave a store in memory and come into one. Knows how such a store keeps a log; checks no leases.

Links are those of the newest rule here, so a thread with older ones is linked anew on its way in.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from evener.events import VERSION, decode_event, encode_event
from evener.store.chain import RULE, digest_of, link, origin_of
from evener.store.funnel import Funnel
from evener.store.kept import Kept
from evener.store.moving import Branch, Cargo, Chains, Record, Whole, holds_a_secret

__all__ = ["branch_of", "records_of", "taken_in"]


def branch_of(kept: Kept) -> Branch:
    """The log, but for its events."""
    parent = kept.parent
    return Branch(
        kept.log, kept.harness, kept.began, kept.changed, kept.length, kept.base,
        parent.log if parent else "", parent.link(kept.base).hash if parent else "", kept.erased,
    )  # fmt: skip


def records_of(kept: Kept) -> list[Record]:
    """Its own events with their links."""
    chain, records = origin_of(kept.log), []
    for seq, line in enumerate(kept.path(kept.base, kept.length), kept.base + 1):
        event, gone = decode_event(line), kept.digests.get(seq)
        kind = str(type(event).__struct_config__.tag)
        digest = gone or digest_of(line)
        chain = link(chain, digest, seq=seq, version=VERSION, at=event.at, kind=kind)
        erased = None if gone is None else kept.erased or 0.0
        records.append(Record(seq, VERSION, RULE, event.at, kind, digest, chain, line, erased))
    return records


def taken_in(
    wholes: Sequence[Whole], cargo: Cargo, funnel: Funnel, blobs: Mapping[str, bytes]
) -> tuple[list[Kept], dict[str, bytes]]:
    """The logs and the blobs of threads that come in, beside those that are there."""
    made = dict[str, Kept]()
    for whole in wholes:
        chains = Chains(whole.branches)
        for branch in map(chains.named, whole.branches):
            records = (_newest(record) for record in cargo.records(branch.log))
            lines = chains.linked(branch, records, lambda _, payload: funnel.clean(payload))
            made[branch.log] = _kept(branch, list(lines), made.get(branch.parent))
    fresh = dict(blobs)
    for blob in cargo.blobs():
        if funnel.blob(blob.content) != blob.content:
            raise holds_a_secret(blob)
        fresh[blob.digest] = blob.content
    return list(made.values()), fresh


def _kept(branch: Branch, records: list[Record], parent: Kept | None) -> Kept:
    kept = Kept(branch.log, decode_event(records[0].payload), parent)
    kept.began, kept.changed, kept.erased, kept.length = branch.began, branch.changed, branch.erased, branch.length
    kept.lines = bytearray(b"".join([record.payload + b"\n" for record in records]))
    kept.digests = {record.seq: record.digest for record in records if record.erased is not None}
    kept.epoch, kept.rival = 1, "copy"
    return kept


def _newest(record: Record) -> Record:
    """The record in the form and with the rule of today."""
    if record.version == VERSION:
        return replace(record, rule=RULE)
    return replace(record, rule=RULE, version=VERSION, payload=encode_event(decode_event(record.payload, record.version)))
