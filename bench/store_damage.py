"""`python -m bench damage`: files of a store, torn, flipped and mixed up in every way, and what the store says to each.

A change is noticed, or it hit nothing that was stored. What is read is what was written, up to the end of some append; when
less is there than the file of heads beside the store vouches for, `verify` says so.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import msgspec

from bench.store_life import FILE, HEADS, LATER, WAL, Life, Moment, lived
from evener.errors import EvenerError
from evener.events import encode_events
from evener.store import SqliteStore
from evener.store.protocol import NoLog

__all__ = ["DAMAGES", "Outcome", "Tally", "campaign", "damaged", "judged", "main"]

PAGE = 4096
Files = Mapping[str, bytes]


class Outcome(msgspec.Struct, frozen=True):
    """What the store said: whether it noticed, whether less is there than was, and what it should not have let pass."""

    noticed: bool
    shorter: bool
    wrong: tuple[str, ...] = ()


class Tally(msgspec.Struct):
    """What a campaign came to."""

    files: int = 0
    noticed: int = 0
    shorter: int = 0
    harmless: int = 0
    kinds: dict[str, int] = {}
    wrong: list[str] = []


# The damages: each gives other files. They are of a disk, or of a person who copies files; none knows how a store is made.


def _flipped(files: Files, chance: Random, life: Life) -> Files:
    del life
    name = _one_of(files, chance)
    content = bytearray(files[name])
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return {**files, name: bytes(content)}


def _flipped_in_an_event(files: Files, chance: Random, life: Life) -> Files:
    """The bytes of an event, where they lie in the file in one piece."""
    events = [event for log in life.events.values() for event in log]
    for _ in range(50):
        name, event = _one_of(files, chance), chance.choice(events)
        at = files[name].find(event)
        if at >= 0:
            content = bytearray(files[name])
            content[at + chance.randrange(len(event))] ^= 1 << chance.randrange(8)
            return {**files, name: bytes(content)}
    return _flipped(files, chance, life)


def _cut(files: Files, chance: Random, life: Life) -> Files:
    del life
    name = _one_of(files, chance)
    return {**files, name: files[name][: chance.randrange(len(files[name]))]}


def _zeroed(files: Files, chance: Random, life: Life) -> Files:
    del life
    name = _one_of(files, chance)
    size = chance.choice((512, PAGE))
    at = chance.randrange(0, len(files[name]), size)
    return {**files, name: _put(files[name], at, bytes(min(size, len(files[name]) - at)))}


def _overwritten(files: Files, chance: Random, life: Life) -> Files:
    del life
    name = _one_of(files, chance)
    many = min(len(files[name]), chance.choice((1, 4, 32, 512)))
    return {**files, name: _put(files[name], chance.randrange(len(files[name]) - many + 1), chance.randbytes(many))}


def _swapped(files: Files, chance: Random, life: Life) -> Files:
    """Two pages change places, or one lies in the place of another, too."""
    del life
    content = files[FILE]
    one, two = (chance.randrange(0, len(content) // PAGE) * PAGE for _ in range(2))
    swapped = _put(content, one, content[two : two + PAGE])
    return {**files, FILE: swapped if chance.random() < 0.5 else _put(swapped, two, content[one : one + PAGE])}


def _mixed(files: Files, chance: Random, life: Life) -> Files:
    """One of the files is of another time."""
    name = chance.choice((FILE, WAL))
    others = [moment.files[name] for moment in life.moments if moment.files.get(name)]
    return {**files, name: chance.choice(others)}


def _page_of_another_time(files: Files, chance: Random, life: Life) -> Files:
    """One page is as it was, or as it will be; what differs is taken where there is something."""
    now, old = files[FILE], chance.choice(life.moments).files[FILE]
    places = range(0, min(len(old), len(now)), PAGE)
    differing = [at for at in places if old[at : at + PAGE] != now[at : at + PAGE]]
    at = chance.choice(differing or places)
    return {**files, FILE: _put(now, at, old[at : at + PAGE])}


def _without_a_log(files: Files, chance: Random, life: Life) -> Files:
    del chance, life
    return {name: content for name, content in files.items() if name != WAL}


def _brought_back(files: Files, chance: Random, life: Life) -> Files:
    """All of an older time, but for the heads."""
    old = chance.choice(life.moments).files
    return {**{name: content for name, content in old.items() if name != HEADS}, HEADS: files.get(HEADS, b"")}


def _other_heads(files: Files, chance: Random, life: Life) -> Files:
    """What vouches for the others is damaged, of another time, or gone."""
    heads = chance.choice([moment.files.get(HEADS, b"") for moment in life.moments])
    if heads and chance.random() < 0.7:
        heads = (
            _put(heads, chance.randrange(len(heads)), chance.randbytes(1))
            if chance.random() < 0.5
            else heads[: len(heads) // 2]
        )
    return {**files, HEADS: heads}


DAMAGES: dict[str, Callable[[Files, Random, Life], Files]] = {
    "bits flipped": _flipped,
    "a bit of an event flipped": _flipped_in_an_event,
    "cut off": _cut,
    "a part zeroed": _zeroed,
    "a part overwritten": _overwritten,
    "pages swapped": _swapped,
    "one file of another time": _mixed,
    "a page of another time": _page_of_another_time,
    "SQLite's log is gone": _without_a_log,
    "brought back from another time": _brought_back,
    "other heads": _other_heads,
}


def damaged(life: Life, seed: int) -> tuple[str, Moment, Files]:
    """A kind of damage, the moment it happened to, and the files after it."""
    chance = Random(seed)
    closed = [moment for moment in life.moments if WAL not in moment.files]
    moment = chance.choice(chance.choice((life.moments, closed)))
    kind = list(DAMAGES)[seed % len(DAMAGES)]
    return kind, moment, DAMAGES[kind](moment.files, chance, life)


def judged(path: Path, life: Life, moment: Moment) -> Outcome:
    """Use the store at `path`, and see what it lets pass."""
    return asyncio.run(_judge(path, life, moment))


async def _judge(path: Path, life: Life, moment: Moment) -> Outcome:
    store = SqliteStore(path, clock=lambda: 2 * LATER)
    try:
        noticed = any(finding.damage for finding in await store.verify())
    except EvenerError:
        noticed = True
    found: dict[str, int] = {}
    wrong: list[str] = []
    for name in moment.lengths:
        try:
            events = encode_events(await store.read(name))
        except NoLog:
            found[name] = 0
            continue
        except EvenerError:
            noticed = True
            continue
        found[name] = len(events)
        wrong += _let_pass(name, events, life)
    shorter = [name for name, many in found.items() if many < moment.lengths[name]]
    wrong += [f"{name}: has an event that it has lost" for name in shorter if await _has(store, name, moment.lengths[name])]
    await store.aclose()
    if not noticed:
        unseen = [name for name, many in found.items() if many < moment.vouched.get(name, 0)]
        wrong += [f"{name}: {found[name]} events of {moment.vouched[name]} are there, and nothing was said" for name in unseen]
    return Outcome(noticed, bool(shorter), tuple(wrong))


async def _has(store: SqliteStore, log: str, seq: int) -> bool:
    """What somebody learns who has kept the link of the last event elsewhere."""
    try:
        await store.link(log, seq)
    except EvenerError:
        return False
    return True


def _let_pass(name: str, events: Sequence[bytes], life: Life) -> list[str]:
    if events != life.events[name][: len(events)]:
        return [f"{name}: what was read is not what was written"]
    if len(events) not in life.ends[name]:
        return [f"{name}: an append is there by half, at {len(events)}"]
    return []


def campaign(files: int, seed: int, folder: Path) -> Tally:
    """Damage so many files, and judge what comes of each."""
    (folder / "life").mkdir(parents=True)
    life = lived(folder / "life")
    tally, kinds = Tally(wrong=[]), Counter[str]()
    for number in range(files):
        place = folder / str(number)
        place.mkdir()
        kind, moment, changed = damaged(life, seed + number)
        for name, content in changed.items():
            (place / name).write_bytes(content)
        outcome = judged(place / FILE, life, moment)
        tally.files += 1
        tally.noticed += outcome.noticed
        tally.shorter += outcome.shorter and not outcome.noticed
        tally.harmless += not (outcome.noticed or outcome.shorter)
        kinds[f"{kind}: {'noticed' if outcome.noticed else 'shorter' if outcome.shorter else 'harmless'}"] += 1
        tally.wrong += [f"damage {seed + number} ({kind}): {text}" for text in outcome.wrong]
        for file in place.iterdir():
            file.unlink()
        place.rmdir()
    tally.kinds = dict(sorted(kinds.items()))
    return tally


def main(files: int, seed: int) -> int:
    """A campaign, and what it came to; 1 when anything was wrong."""
    with tempfile.TemporaryDirectory(prefix="evener-damage-") as folder:
        tally = campaign(files, seed, Path(folder))
    for text in (*tally.wrong[:20], *(f"{many:6} {kind}" for kind, many in tally.kinds.items())):
        print(text)
    print(
        f"seed {seed}: {tally.files:,} damaged files. {tally.noticed:,} were noticed, {tally.harmless:,} had lost nothing, "
        f"{tally.shorter:,} had lost the end of a log that no head vouched for yet. {len(tally.wrong)} wrongs let pass."
    )
    return 1 if tally.wrong else 0


def _one_of(files: Files, chance: Random) -> str:
    """The file of the store or SQLite's log beside it."""
    return chance.choice([name for name in (FILE, WAL) if files.get(name)])


def _put(content: bytes, at: int, piece: bytes) -> bytes:
    return content[:at] + piece + content[at + len(piece) :]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
