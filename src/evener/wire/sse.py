"""Splits server-sent events out of a byte stream, cut anywhere. Pure; never splits text on anything but CR and LF.

Follows the HTML standard's parsing rules: lines end in LF, CRLF or CR; `data:` lines are joined by LF; comments and unknown
fields are ignored; a blank line ends an event. One liberty: an event that the stream ends on without its blank line is still
delivered by `close`, because some servers forget it (a cut-off one fails to parse and is then a truncation).
"""

from evener.errors import WireError

__all__ = ["MAX_FRAME", "SseReader"]

MAX_FRAME = 64 * 1024 * 1024
"""Bytes one event may have. A larger one is a WireError, not a memory problem."""

BOM = b"\xef\xbb\xbf"


class SseReader:
    """Feed bytes, get the data of each complete event. Event names are dropped: all four wires repeat them in the data."""

    __slots__ = ("_buffer", "_cr", "_first", "_max", "_searched")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._cr = False
        self._first = True
        self._max = max_frame

    def feed(self, data: bytes) -> list[bytes]:
        """The data of every event that these bytes complete."""
        if self._first:
            if len(data) < 3 and BOM.startswith(bytes(self._buffer) + data):
                self._buffer += data
                return []
            data = bytes(self._buffer) + data
            self._buffer.clear()
            data = data.removeprefix(BOM)
            self._first = False
        if self._cr or b"\r" in data:
            data = self._with_plain_lines(data)
        buffer = self._buffer
        buffer += data
        end = buffer.rfind(b"\n\n", self._searched)
        if end < 0:
            self._searched = max(0, len(buffer) - 1)
            if len(buffer) > self._max:
                raise too_large(self._max)
            return []
        events = bytes(buffer[:end]).split(b"\n\n")
        if end > self._max and max(map(len, events)) > self._max:
            raise too_large(self._max)
        del buffer[: end + 2]
        self._searched = max(0, len(buffer) - 1)
        return [found for event in events if (found := event_data(event)) is not None]

    def close(self) -> list[bytes]:
        """The data of an event that was not ended by a blank line."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        found = event_data(rest) if rest else None
        return [] if found is None else [found]

    def _with_plain_lines(self, data: bytes) -> bytes:
        if self._cr:
            data = b"\r" + data
        self._cr = data.endswith(b"\r")
        if self._cr:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def too_large(limit: int) -> WireError:
    """The error for an event beyond the cap."""
    return WireError(f"One event of the stream is larger than {limit} bytes. Expected small ones; raise the cap if it is real.")


def event_data(event: bytes) -> bytes | None:
    """The data of one event's lines; None when it has none."""
    start = event.find(b"data:")
    if start < 0:
        return None
    if (start == 0 or event[start - 1] == 10) and event.find(b"\n", start) < 0:
        return event[start + 6 :] if event[start + 5 : start + 6] == b" " else event[start + 5 :]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
