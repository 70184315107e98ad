"""The description and schema of each tool of a server at its first use, as a hash.

A server can change a tool after the user has begun to trust it. A tool whose hash has changed needs approval again.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import msgspec

from evener.errors import StoreError
from evener.private_file import write_private

Known = dict[str, dict[str, str]]
MOST_FILE = 16 << 20


def digest_tool(name: str, description: str, schema: Mapping[str, object], annotations: object) -> str:
    """Return the hash of everything that the model and the user see of a tool."""
    return sha256(msgspec.json.encode((name, description, schema, annotations), order="deterministic")).hexdigest()


class Pins(Protocol):
    """Remembers one digest for each tool of each server."""

    def read(self, server: str) -> Mapping[str, str]:
        """Return the digests of the server's tools, by the server's own tool names."""
        ...

    def write(self, server: str, digests: Mapping[str, str]) -> None:
        """Store these digests, in place of earlier ones of the same tools."""
        ...


class MemoryPins:
    """Pins that end with the process: a change is found while it runs."""

    def __init__(self) -> None:
        self._known: Known = {}

    def read(self, server: str) -> Mapping[str, str]:
        """Return the digests of the server's tools."""
        return dict(self._known.get(server, {}))

    def write(self, server: str, digests: Mapping[str, str]) -> None:
        """Store these digests."""
        self._known.setdefault(server, {}).update(digests)


class FilePins:
    """Pins in a JSON file that only the user can read. Written atomically; of two writers at once, the later wins."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self, server: str) -> Mapping[str, str]:
        """Return the digests of the server's tools; none if there is no file."""
        return self._load().get(server, {})

    def write(self, server: str, digests: Mapping[str, str]) -> None:
        """Store these digests."""
        known = self._load()
        known.setdefault(server, {}).update(digests)
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self._file, msgspec.json.format(msgspec.json.encode(known, order="deterministic")))
        except OSError as error:
            raise StoreError(
                f"The pins of MCP tools cannot be written to {self._file}: {error.strerror}. Make its folder writable."
            ) from None

    def _load(self) -> Known:
        try:
            content = self._file.read_bytes() if self._file.stat().st_size <= MOST_FILE else b""
            return msgspec.json.decode(content, type=Known)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(
                f"The pins of MCP tools in {self._file} cannot be read ({error}). Delete the file to pin all tools anew."
            ) from None
