"""Arrays in PostgreSQL's binary format, packed in a few calls. psycopg packs each element by itself, which costs much more."""

import struct
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


INTEGER, TEXT, BYTES, FLOAT = 20, 25, 17, 701
"""The numbers that PostgreSQL has for `bigint`, `text`, `bytea` and `double precision`."""
_head = struct.Struct(">iiIii").pack
_length = struct.Struct(">i").pack


class PackedArray(bytes):
    """An array in the server's format. The statement names its type: `%b::bigint[]`."""


def pack_integers(values: Sequence[int]) -> PackedArray:
    """Return an array of `bigint`."""
    return _pack_numbers(INTEGER, "iq", values)


def pack_floats(values: Sequence[float]) -> PackedArray:
    """Return an array of `double precision`."""
    return _pack_numbers(FLOAT, "id", values)


def pack_texts(values: Iterable[str]) -> PackedArray:
    """Return an array of `text`."""
    return _pack(TEXT, [value.encode() for value in values])


def pack_bytes(values: Sequence[bytes]) -> PackedArray:
    """Return an array of `bytea`."""
    return _pack(BYTES, values)


def _pack_numbers(kind: int, shape: str, values: Sequence[float]) -> PackedArray:
    many = len(values)
    packed = struct.pack(">" + shape * many, *chain.from_iterable(zip(repeat(8), values, strict=False)))
    return PackedArray(_head(1, 0, kind, many, 1) + packed)


def _pack(kind: int, values: Sequence[bytes]) -> PackedArray:
    sizes = map(_length, map(len, values))
    return PackedArray(b"".join([_head(1, 0, kind, len(values), 1), *chain.from_iterable(zip(sizes, values, strict=True))]))


def let_pass(connection: "psycopg.Connection") -> None:
    """Let packed arrays pass to the server as they are."""
    connection.adapters.register_dumper(PackedArray, _dumper())


@cache
def _dumper() -> Any:
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class PackedDumper(Dumper):
        format = Format.BINARY
        oid = 0  # as the statement says

        def dump(self, obj: PackedArray) -> PackedArray:
            return obj

    return PackedDumper
