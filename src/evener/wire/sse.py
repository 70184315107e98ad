"""Splits server-sent events out of a byte stream, cut anywhere. Pure; never splits text on anything but CR and LF.

Follows the HTML standard's parsing rules: lines end in LF, CRLF or CR; `data:` lines are joined by LF; comments and unknown
fields are ignored; a blank line ends an event. Two deviations, which some servers need: an event that has a field
`error` and no data is that error; and an event that the stream ends on without its blank line is still delivered by `close` (a
cut-off one fails to parse and is then a truncation).
"""

import re
from collections.abc import Iterator
from typing import final

import msgspec

from evener.errors import WireError

MAX_FRAME = 32 * 1024 * 1024
"""The most bytes of one event. A larger one is a WireError, not a memory problem."""

SLICE = 64 * 1024
"""Bytes that are split at once. A larger event is split while it arrives, and only its data is kept."""

BOM = b"\xef\xbb\xbf"
LF = 10
CR = 13  # as numbers: looking for one byte is much cheaper than looking for a string
BLANK = b"\n\n"
CRLFS = b"\r\n\r\n"
DATA = b"data: "
NAME = b"event: "
NAMED_DATA = b"\n" + DATA
NEXT_NAME = BLANK + NAME
OPENED = b"\n" + DATA
DATA_LINES = re.compile(rb"^data: ?(.*)$", re.MULTILINE)


@final
class LargeEvent:
    """An event that is larger than a slice, without its end: the data so far. Lines end in LF here."""

    __slots__ = ("_data", "_in_data", "_in_line", "_start", "size")

    def __init__(self, text: bytes) -> None:
        self.size = 0
        """Bytes of the event so far, its data and all else."""
        self._data: bytearray | None = None
        self._start = b""
        self._in_line = self._in_data = False
        self.add(text.lstrip(b"\n"))

    def add(self, text: bytes) -> bytes | None:
        """Take the next bytes. Returns what stands behind the event when it ends in them, else None."""
        self.size += len(text)
        if self._in_line:
            line, ended, text = text.partition(b"\n")
            if self._in_data and self._data is not None:
                self._data += line
            if not ended:
                return None
            self._in_line = False
        elif self._start:
            text, self._start = self._start + text, b""
        if text[:1] == b"\n":
            return text[1:]
        lines, ended, rest = text.partition(BLANK)
        if ended:
            self._take(lines)
            return rest
        lines, _, line = text.rpartition(b"\n")
        self._take(lines)
        self._open(line)
        return None

    def end(self) -> list[bytes]:
        """Return the data, if there is any."""
        if self._start.startswith(b"data:"):
            self._append(b"")
        data, self._data = self._data, None
        return [] if data is None else [bytes(data)]

    def _take(self, lines: bytes) -> None:
        """Add the data of whole lines. All of them are data in nearly every event that is this large."""
        if not lines:
            return
        text = b"\n" + lines
        if text.count(OPENED) == text.count(b"\n"):
            self._append(text.replace(OPENED, b"\n")[1:])
        elif found := DATA_LINES.findall(lines):
            self._append(b"\n".join(found))

    def _open(self, line: bytes) -> None:
        """Begin a line whose end has not come. Of a very short one it is not known yet what it is."""
        if len(line) < len(DATA):
            self._start = line
            return
        self._in_line = True
        self._in_data = line.startswith(b"data:")
        if self._in_data:
            self._append(line[5:].removeprefix(b" "))

    def _append(self, data: bytes) -> None:
        if self._data is None:
            self._data = bytearray(data)
        else:
            self._data += b"\n"
            self._data += data


class SseReader(msgspec.Struct, gc=False):
    """Feed bytes, get the data of each complete event. Event names are dropped: all four wires repeat them in the data.

    Nearly all events of a stream open with the same lines, up to `data: `. Splitting at a blank line and that opening gives
    their data at once, unless a line end is left in it: then they are taken apart one by one.
    """

    max_frame: int = MAX_FRAME
    _held: bytes | bytearray | LargeEvent = b""
    _searched: int = 0
    _cr: bool = False
    _begun: bool = False
    _opening: bytes = DATA

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of every event that these bytes complete."""
        if not self._begun:
            data = self._first(data)
        blank = CRLFS if data[-4:] == CRLFS else BLANK
        if self._held or self._cr or data[-len(blank) :] != blank or len(data) > SLICE or len(data) > self.max_frame:
            if len(data) > SLICE:
                return [frame for piece in slices(data) for frame in self.feed(piece)]
            held = self._held
            if type(held) is LargeEvent:
                return self._continue(held, data)
            data, blank = self._complete(held, data), BLANK
            if not data:
                return []
        opening = self._opening
        start = len(opening)
        if data[:start] == opening:
            pieces = data[start : -len(blank)].split(blank + opening)
            told = b"".join(pieces)
            if LF not in told and CR not in told:
                return pieces
        return self._learn(data)

    def close(self) -> list[bytes]:
        """Return the data of an event without a closing blank line. One JSON text sent as a stream counts as an event."""
        held, self._held = self._held, b""
        if not held:
            return []
        if type(held) is LargeEvent:
            return held.end()
        rest = bytes(held)
        found = event_data(rest)
        if found is None and rest.lstrip()[:1] == b"{":
            found = rest
        return [] if found is None else [found]

    def _first(self, data: bytes) -> bytes:
        """Return the first bytes without a byte order mark; hold them while they may be half of one."""
        held = self._held
        if held and type(held) is not LargeEvent:
            data = bytes(held) + data
            self._held = b""
            self._searched = 0
        if len(data) < len(BOM) and BOM.startswith(data):
            self._held = data
            return b""
        self._begun = True
        return data.removeprefix(BOM) if data[:1] == BOM[:1] else data

    def _complete(self, held: bytes | bytearray, data: bytes) -> bytes:
        """Return the held and these bytes up to the last blank line, and hold the rest. Empty when there is no blank line."""
        if self._cr or CR in data:
            data = self._with_plain_lines(data)
        buffer = held if isinstance(held, bytearray) else bytearray(held)
        self._held = buffer
        buffer += data
        end = buffer.rfind(BLANK, self._searched) + len(BLANK)
        if end < len(BLANK):
            self._searched = max(0, len(buffer) - 1)
            if len(buffer) > self.max_frame:
                raise too_large(self.max_frame)
            if len(buffer) > SLICE and buffer[:SLICE].lstrip()[:1] != b"{":  # else it may be a JSON text; see `close`
                self._held, self._searched = LargeEvent(bytes(buffer)), 0
            return b""
        with memoryview(buffer) as view:
            complete = bytes(view[:end])
        if end > self.max_frame and max(map(len, complete.split(BLANK))) > self.max_frame:
            raise too_large(self.max_frame)
        del buffer[:end]
        self._searched = max(0, len(buffer) - 1)
        return complete

    def _continue(self, large: LargeEvent, data: bytes) -> list[bytes]:
        """Continue a large event; return its data and that of the events behind it, if these bytes end it."""
        if self._cr or CR in data:
            data = self._with_plain_lines(data)
        rest = large.add(data)
        if large.size > self.max_frame:
            raise too_large(self.max_frame)
        if rest is None:
            return []
        self._held = b""
        found = large.end()
        if rest:
            cut, self._cr = self._cr, False  # a CR at the end of the data is behind the rest
            found += self.feed(rest)
            self._cr = cut
        return found

    def _learn(self, text: bytes) -> list[bytes]:
        """Return the data of events that do not open as expected, and expect the next to open as the last of these."""
        if CR in text:
            text = self._with_plain_lines(text)
        start = len(NAME) if text[: len(NAME)] == NAME else 0
        events = text[start:-2].split(NEXT_NAME)
        found = [] if start else split_events(events.pop(0))
        last = b""
        for event in events:
            name, opened, data = event.partition(NAMED_DATA)
            if not opened or LF in name or LF in data:
                found += split_events(NAME + event)
            else:
                found.append(data)
                last = name
        self._opening = NAME + last + NAMED_DATA if last else DATA
        return found

    def _with_plain_lines(self, data: bytes) -> bytes:
        """Return the bytes with LF for every line end. A CR at their end is held: it may be half of one."""
        if self._cr:
            data = b"\r" + data
        self._cr = data[-1:] == b"\r"
        if self._cr:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def slices(data: bytes) -> Iterator[bytes]:
    """Cut bytes into slices."""
    view = memoryview(data)
    for start in range(0, len(data), SLICE):
        yield bytes(view[start : start + SLICE])


def too_large(limit: int) -> WireError:
    """Return the error for an event beyond the cap."""
    return WireError(
        f"One event of the stream is larger than {limit} bytes, the maximum. Check the address, or ask for a shorter answer."
    )


def split_events(text: bytes) -> list[bytes]:
    """Return the data of each event that has some."""
    return [data for event in text.split(BLANK) if (data := event_data(event)) is not None]


def event_data(event: bytes) -> bytes | None:
    """Return the data of one event's lines; None when it has none."""
    if len(event) > SLICE:
        large = LargeEvent(b"")
        for piece in slices(event.lstrip(b"\n")):
            large.add(piece)
        found = large.end()
        return found[0] if found else None
    start = event.find(b"data:")
    if start < 0:
        return error_data(event)
    if (start == 0 or event[start - 1] == LF) and event.find(b"\n", start) < 0:
        return event[start + 6 :] if event[start + 5 : start + 6] == b" " else event[start + 5 :]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else error_data(event)


def error_data(event: bytes) -> bytes | None:
    """Return the error of an event with a field `error` instead of data, as its wire would send it; None when it has none."""
    lines = [line[6:].strip() for line in event.split(b"\n") if line.startswith(b"error:")]
    if not lines:
        return None
    said = b"\n".join(lines)
    try:
        value = msgspec.json.decode(said)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = said.decode(errors="replace")
    if isinstance(value, dict) and "error" in value:
        return said
    words = value if isinstance(value, dict) else str(value)
    return msgspec.json.encode({"error": words or "The server sent an error without a message."})
