"""Spoken answers: a transcript that reads as text, the sound, and the id it goes back by. Pure."""

import msgspec

from evener.transcript.delta import Delta
from evener.wire.lenient import Place, read_some
from evener.wire.text import dumps

__all__ = ["Speech"]

# How base64 of each sort of sound begins; what is not known is taken for samples.
SOUNDS = {"UklGR": "audio/wav", "SUQz": "audio/mpeg", "//": "audio/mpeg", "T2dn": "audio/ogg", "ZkxhQ": "audio/flac"}


class _Audio(msgspec.Struct):
    id: str | None = None
    transcript: str | None = None
    data: str | None = None
    expires_at: Place = None


class Speech:
    """Sound as it comes."""

    def __init__(self) -> None:
        self.id = ""
        self._expires: int | None = None
        self._data: list[str] = []

    def add(self, raw: bytes, found: list[Delta]) -> str:
        """Take a piece in; its words. What cannot be read of it is a notice."""
        read = read_some(raw, _Audio, "audio", found)
        self.id = read.id or self.id
        self._expires = read.expires_at or self._expires
        self._data += [read.data] if read.data else []
        return read.transcript or ""

    def sound(self) -> tuple[str, str]:
        """The sort of sound, and its base64; both empty when there was none."""
        data = "".join(self._data)
        sort = next((sort for start, sort in SOUNDS.items() if data.startswith(start)), "audio/pcm")
        return (sort, data) if data else ("", "")

    def sealed(self) -> dict[str, msgspec.Raw]:
        """What the transcript's block is sealed with."""
        return {"audio": msgspec.Raw(dumps({"id": self.id, "expires_at": self._expires}))} if self.id else {}
