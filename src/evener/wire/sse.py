"""Splits server-sent events out of a byte stream, cut anywhere. Pure; never splits text on anything but CR and LF.

Follows the HTML standard's parsing rules: lines end in LF, CRLF or CR; `data:` lines are joined by LF; comments and unknown
fields are ignored; a blank line ends an event. One liberty: an event that the stream ends on without its blank line is still
delivered by `close`, because some servers forget it (a cut-off one fails to parse and is then a truncation).
"""

from evener.errors import WireError

__all__ = ["MAX_FRAME", "SseReader"]

MAX_FRAME = 32 * 1024 * 1024
"""Bytes one event may have. A larger one is a WireError, not a memory problem."""

BOM = b"\xef\xbb\xbf"
LF = 10
CR = 13  # as numbers: looking for one byte is much cheaper than looking for a string
BLANK = b"\n\n"
DATA = b"data: "


class SseReader:
    """Feed bytes, get the data of each complete event. Event names are dropped: all four wires repeat them in the data.

    Nearly all events of a stream open with the same lines, up to `data: `. Splitting at a blank line and that opening gives
    their data at once; only pieces that still hold a line end are taken apart line by line.
    """

    __slots__ = ("_before", "_buffer", "_cr", "_first", "_max", "_opening", "_searched")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._cr = False
        self._first = True
        self._max = max_frame
        self._before = b""
        self._opening = DATA

    def feed(self, data: bytes) -> list[bytes]:
        """The data of every event that these bytes complete."""
        if self._cr or CR in data:
            data = self._with_plain_lines(data)
        if self._first or self._buffer or data[-2:] != BLANK or len(data) > self._max:
            data = self._completed(data)
        opening = self._opening
        start = len(opening)
        if data[:start] != opening:
            return self._taken_apart(data[:-2])
        rest = data[start:-2]
        if LF not in rest:
            return [rest]
        found: list[bytes] = []
        for piece in rest.split(BLANK + opening):
            if LF in piece:
                found += self._taken_apart(opening + piece)
            else:
                found.append(piece)
        return found

    def close(self) -> list[bytes]:
        """The data of an event that was not ended by a blank line."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        found = event_data(rest) if rest else None
        return [] if found is None else [found]

    def _completed(self, data: bytes) -> bytes:
        """What is held and these bytes, up to the last blank line; the rest is held. Empty when there is no blank line."""
        buffer = self._buffer
        buffer += data
        if self._first:
            if len(buffer) < len(BOM) and BOM.startswith(buffer):
                return b""
            self._first = False
            if buffer.startswith(BOM):
                del buffer[: len(BOM)]
        end = buffer.rfind(BLANK, self._searched) + len(BLANK)
        if end < len(BLANK):
            self._searched = max(0, len(buffer) - 1)
            if len(buffer) > self._max:
                raise too_large(self._max)
            return b""
        complete = bytes(buffer[:end])
        if end > self._max and max(map(len, complete.split(BLANK))) > self._max:
            raise too_large(self._max)
        del buffer[:end]
        self._searched = max(0, len(buffer) - 1)
        return complete

    def _taken_apart(self, text: bytes) -> list[bytes]:
        """The data of events of any form. An opening that comes twice running is the one to look for from now on."""
        found: list[bytes] = []
        for event in text.split(BLANK):
            start = len(self._opening)
            data: bytes | None = event[start:]
            if LF in event[start:] or event[:start] != self._opening:
                data = event_data(event)
                self._learn(event[: len(event) - len(data or b"")])
            if data is not None:
                found.append(data)
        return found

    def _learn(self, opening: bytes) -> None:
        if opening == self._before and is_opening(opening):
            self._opening = opening
        self._before = opening or self._before

    def _with_plain_lines(self, data: bytes) -> bytes:
        """The bytes with LF for every line end. A CR at their end is held: it may be half of one."""
        line = data[:-4]
        if not self._cr and data[-4:] == b"\r\n\r\n" and CR not in line and LF not in line:
            return line + BLANK  # one event of one line, as most are
        if self._cr:
            data = b"\r" + data
        self._cr = data[-1:] == b"\r"
        if self._cr:
            data = data[:-1]
        lines = data.splitlines()  # of bytes, unlike that of str, knows CR, LF and CRLF only
        if data[-1:] in (b"\n", b"\r"):
            lines.append(b"")
        return b"\n".join(lines)


def too_large(limit: int) -> WireError:
    """The error for an event beyond the cap."""
    return WireError(f"One event of the stream is larger than {limit} bytes. Expected small ones; raise the cap if it is real.")


def is_opening(start: bytes) -> bool:
    """Whether the start of an event ends in its first data line's `data: `."""
    return start.endswith(DATA) and start.count(b"data:") == 1 and start[-7:-6] in (b"", b"\n")


def event_data(event: bytes) -> bytes | None:
    """The data of one event's lines; None when it has none."""
    start = event.find(b"data:")
    if start < 0:
        return None
    if (start == 0 or event[start - 1] == LF) and event.find(b"\n", start) < 0:
        return event[start + 6 :] if event[start + 5 : start + 6] == b" " else event[start + 5 :]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
