"""The first difference between a replay and its recording, for people to read. Pure."""

from collections.abc import Iterator

import msgspec

from evener.events import Event, encode_event

SHOWN = 200
"""Characters of a value that are shown."""
ABSENT = "(not there)"


class Difference(msgspec.Struct, frozen=True):
    """One field of one event. `number` is the event's, from 1; `field` a path such as `message.blocks[0].text`."""

    number: int
    field: str
    recorded: str
    replayed: str

    def __str__(self) -> str:
        return f"event {self.number}, {self.field}: recorded {self.recorded}, replayed {self.replayed}"


def kind_of(event: Event) -> str:
    """Return the kind of an event, as it is stored."""
    return str(event.__struct_config__.tag)


def compare_events(recorded: Event, replayed: Event, *, number: int) -> tuple[Difference, ...]:
    """Return the fields in which two events differ. Events of different kinds differ only in `kind`."""
    if type(recorded) is not type(replayed):
        return (Difference(number, "kind", kind_of(recorded), kind_of(replayed)),)
    if recorded == replayed:  # their bytes may differ: the oldest logs have fields that hold their default
        return ()
    ours, theirs = encode_event(recorded), encode_event(replayed)
    return tuple(_walk("", msgspec.json.decode(ours), msgspec.json.decode(theirs), number))


def _walk(path: str, recorded: object, replayed: object, number: int) -> Iterator[Difference]:
    match recorded, replayed:
        case dict(), dict():
            for key in dict.fromkeys((*recorded, *replayed)):
                below = f"{path}.{key}" if path else str(key)
                yield from _walk(below, recorded.get(key, ABSENT), replayed.get(key, ABSENT), number)
        case list(), list() if len(recorded) == len(replayed):
            for place, (one, other) in enumerate(zip(recorded, replayed, strict=True)):
                yield from _walk(f"{path}[{place}]", one, other, number)
        case _:
            if recorded != replayed:
                yield Difference(number, path, _show(recorded), _show(replayed))


def _show(value: object) -> str:
    text = value if value is ABSENT else msgspec.json.encode(value).decode()
    return str(text) if len(str(text)) <= SHOWN else f"{str(text)[:SHOWN]}..."
