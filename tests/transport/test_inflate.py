"""Decompression gives the same bytes however they are cut, in small pieces, and tells damage from a cut."""

import gzip
import zlib

import pytest

from evener.errors import TruncatedStream, WireError
from evener.transport.inflate import PIECE, Inflater

PLAIN = b"".join(b"%d squared is %d\n" % (number, number * number) for number in range(20_000))


def packed(bits: int, content: bytes = PLAIN) -> bytes:
    packer = zlib.compressobj(wbits=bits)
    return packer.compress(content) + packer.flush()


def inflated(inflater: Inflater, content: bytes, size: int) -> bytes:
    found = []
    for at in range(0, len(content), size):
        inflater.feed(content[at : at + size])
        while piece := inflater.take():
            assert len(piece) <= PIECE
            found.append(piece)
    inflater.finish()
    return b"".join(found)


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize(("name", "bits"), [("gzip", 31), ("x-gzip", 31), ("deflate", 15), ("deflate", -15)])
def test_any_cutting_gives_the_same(name: str, bits: int, size: int) -> None:
    assert inflated(Inflater(name), packed(bits), size) == PLAIN


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_members_follow_each_other(size: int) -> None:
    content = b"".join(gzip.compress(b"%d " % number) for number in range(50)) + b"\0\0"
    assert inflated(Inflater("gzip"), content, size) == b"".join(b"%d " % number for number in range(50))


def test_nothing_at_all_is_an_empty_body() -> None:
    assert inflated(Inflater("gzip"), b"", 1) == b""


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("content", [packed(31)[:-1], packed(31)[:5], packed(15)[:100]], ids=["end", "head", "middle"])
def test_a_cut_is_a_truncation(content: bytes, size: int) -> None:
    with pytest.raises(TruncatedStream, match="stopped in the middle"):
        inflated(Inflater("deflate" if content[0] == 0x78 else "gzip"), content, size)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("gzip", b"<html>"),
        ("gzip", packed(31)[:-8] + b"\0" * 8),
        ("gzip", packed(31) + b"more"),
        ("gzip", gzip.compress(b"") * 1001),
        ("deflate", b"\xff" * 20),
        ("br", b""),
    ],
    ids=["none", "checksum", "tail", "members", "deflate", "unknown"],
)
def test_damage_is_a_wire_error(name: str, content: bytes) -> None:
    with pytest.raises(WireError):
        inflated(Inflater(name), content, 1 << 20)
