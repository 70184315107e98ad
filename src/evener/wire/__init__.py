"""The wires: pure codecs between values and bytes. `CODECS` is the registry; a new wire is a folder and a name in `WIRES`."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from evener.wire.codec import Codec, Decoder, moved
from evener.wire.quirks import Quirks
from evener.wire.request import Encoded, restored
from evener.wire.stream import Assembler, assemble

__all__ = ["CODECS", "Assembler", "Codec", "Decoder", "Encoded", "Quirks", "assemble", "moved", "restored"]

WIRES = ("anthropic_messages", "openai_responses", "openai_chat", "gemini")


class _Codecs(Mapping[str, Codec]):
    """Every wire by its name. A codec is loaded on first use: most programs use one wire."""

    def __getitem__(self, wire: str) -> Codec:
        if wire not in WIRES:
            raise KeyError(wire)
        codec = import_module(f"evener.wire.{wire}").CODEC
        assert isinstance(codec, Codec)
        return codec

    def __contains__(self, wire: object) -> bool:
        return wire in WIRES

    def __iter__(self) -> Iterator[str]:
        return iter(WIRES)

    def __len__(self) -> int:
        return len(WIRES)


CODECS: Mapping[str, Codec] = _Codecs()
