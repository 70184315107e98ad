"""Reads recorded provider traffic. Only `<wire>/*.json` files are ever opened; nothing of it is copied into the tree.

The folder is EVENER_CORPUS when that is set, else ../shared/corpus beside this repository. Where neither exists,
`CORPUS` is None, `exchanges` is empty and tests marked `needs_corpus` are skipped with a reason that says so.
"""

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "corpus"


def _locate() -> Path | None:
    named = os.environ.get("EVENER_CORPUS")
    if named:
        folder = Path(named)
        if not folder.is_dir():
            raise FileNotFoundError(f"EVENER_CORPUS is {named!r}, which is not a folder")
        return folder
    return _DEFAULT if _DEFAULT.is_dir() else None


CORPUS: Path | None = _locate()

needs_corpus = pytest.mark.skipif(
    CORPUS is None,
    reason="no recorded traffic: set EVENER_CORPUS to its folder, or put it at ../shared/corpus",
)

usual_recordings = pytest.mark.skipif(
    CORPUS is None or bool(os.environ.get("EVENER_CORPUS")),
    reason="counts or names what the usual recordings hold; EVENER_CORPUS points to others, or there are none",
)


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """One recorded request and its answer. Exactly one of `response`, `sse` and `text` is set.

    `request` is None for a GET. `sse` holds the stream's bytes as received.
    """

    wire: str
    file: str
    index: int
    provider: str
    method: str
    path: str
    request: Json | None
    status: int
    headers: dict[str, str]
    response: Json | None
    sse: bytes | None
    text: str | None
    tags: frozenset[str]

    @property
    def id(self) -> str:
        """Short and unique within a wire: for test ids and messages."""
        return f"{self.file.removesuffix('.json')}#{self.index}"

    def __repr__(self) -> str:
        return f"Exchange({self.wire}/{self.id})"


def exchanges(wire: str) -> list[Exchange]:
    """All exchanges of a wire in the order of file name and index; empty when there is no corpus."""
    return list(_read(wire))


@cache
def _read(wire: str) -> tuple[Exchange, ...]:
    if CORPUS is None:
        return ()
    folder = CORPUS / wire
    if not folder.is_dir():
        raise FileNotFoundError(f"the corpus has no wire {wire!r}: {folder} is not a folder")
    return tuple(exchange for path in sorted(folder.glob("*.json")) for exchange in _read_file(path))


def _read_file(path: Path) -> list[Exchange]:
    recording: Json = json.loads(path.read_text(encoding="utf-8"))
    return [
        Exchange(
            wire=recording["wire"],
            file=path.name,
            index=index,
            provider=item.get("provider", recording["provider"]),
            method=item["request"]["method"],
            path=item["request"]["path"],
            request=item["request"]["body"],
            status=item["response"]["status"],
            headers=item["response"]["headers"],
            response=item["response"].get("body"),
            sse=item["response"]["sse"].encode() if "sse" in item["response"] else None,
            text=item["response"].get("text"),
            tags=frozenset(item["tags"]),
        )
        for index, item in enumerate(recording["exchanges"])
    ]
