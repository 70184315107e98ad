"""Reads golden cases. A case is a folder `<wire>/<name>/` with some of these files, all written by hand:

    ask.json        what is asked, in neutral words; `losses` lists what encoding it must report, by kind and thing;
                    `quirks` and `dialect` say how the one who is asked differs from others on the wire
    request.json    the request that it becomes, and from which it is read back
    response.sse    the answer as a stream
    response.json   the answer in one piece; where both are there, they say the same
    reply.json      what is understood
    error.json      or the error that the answer is
    next.json       what the assistant's turn is in the next request

`faults.json` of a wire lists answers that are not a 200, and the errors they become.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from evener.errors import EvenerError, ProviderError
from evener.transcript import (
    Ask,
    Block,
    Cache,
    Choice,
    HostedTool,
    ImageBlock,
    Inline,
    Message,
    Origin,
    OutputSchema,
    Reasoning,
    Reply,
    Settings,
    State,
    TextBlock,
    ToolSpec,
    Transcript,
)
from evener.wire import CODECS, Codec, Quirks
from tests.wire.view import piece, seen

Json = dict[str, Any]
FOLDER = Path(__file__).parent
FIELDS: dict[str, Any] = {
    "tools": tuple[ToolSpec, ...],
    "hosted_tools": tuple[HostedTool, ...],
    "choice": Choice,
    "settings": Settings,
    "reasoning": Reasoning,
    "output": OutputSchema,
    "cache": Cache,
    "state": State,
    "stream": bool,
}
COUNTS = ("input", "uncached", "cache_read", "cache_write", "output", "reasoning")


@dataclass(frozen=True)
class Case:
    """One folder."""

    wire: str
    name: str

    @property
    def codec(self) -> Codec:
        return CODECS[self.wire]

    @property
    def folder(self) -> Path:
        return FOLDER / self.wire / self.name

    def has(self, file: str) -> bool:
        return (self.folder / file).exists()

    def bytes(self, file: str) -> bytes:
        return (self.folder / file).read_bytes()

    def json(self, file: str) -> Any:
        return json.loads(self.bytes(file))

    @property
    def target(self) -> Origin:
        return Origin(self.wire, "maker", model="model-1")

    @property
    def quirks(self) -> Quirks:
        return msgspec.convert(self.json("ask.json").get("quirks", {}) if self.has("ask.json") else {}, Quirks)

    @property
    def dialect(self) -> str:
        """Whose rules the request must keep, where several speak a wire."""
        return str(self.json("ask.json").get("dialect", "")) if self.has("ask.json") else ""

    @property
    def ask(self) -> Ask:
        """What is asked: as the case says, or as its request says, or just a greeting."""
        if self.has("ask.json"):
            return ask_of(self.json("ask.json"), self.target)
        if self.has("request.json"):
            return self.codec.read_request(self.bytes("request.json"), self.quirks, self.target)
        return Ask(Transcript([Message.user_text("Hello.")]), self.target)

    def __str__(self) -> str:
        return f"{self.wire}-{self.name}"


def cases(*files: str) -> list[Case]:
    """Every case that has one of these files."""
    found = [Case(path.parent.name, path.name) for path in sorted(FOLDER.glob("*/*")) if path.is_dir()]
    return [case for case in found if case.wire in CODECS and any(case.has(file) for file in files)]


def faults() -> list[tuple[str, Json]]:
    """Every fault of every wire."""
    return [
        (path.parent.name, fault) for path in sorted(FOLDER.glob("*/faults.json")) for fault in json.loads(path.read_bytes())
    ]


def ask_of(written: Json, target: Origin) -> Ask:
    """An ask from its JSON. Seals whose maker is not named were made by the one who is asked now."""
    messages = [
        msgspec.convert({**_sealed_by(message, target), "id": f"m{number}", "created_at": None}, Message)
        for number, message in enumerate(written["messages"])
    ]
    given = {name: msgspec.convert(_texts(written[name]), kind) for name, kind in FIELDS.items() if name in written}
    given["tools"] = (*given.get("tools", ()), *given.pop("hosted_tools", ()))
    system = msgspec.convert(_sealed_by(written.get("system", ""), target), str | tuple[TextBlock, ...])
    return Ask(Transcript(messages, system), target, **given)


def _sealed_by(value: Any, target: Origin) -> Any:
    """Seals are written as objects; inside they are texts with a maker."""
    if isinstance(value, list):
        return [_sealed_by(item, target) for item in value]
    if not isinstance(value, dict):
        return value
    own = {name: _sealed_by(item, target) for name, item in value.items()}
    if "sealed" in own:
        seal = {"data": json.dumps(own.pop("sealed")), "origin": own.pop("by", msgspec.to_builtins(target))}
        return {**own, "seal": seal}
    return _texts(own)


def _texts(value: Any) -> Any:
    """Some values are JSON texts inside; here they may be written as what they mean."""
    if isinstance(value, list):
        return [_texts(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: json.dumps(item) if name in ("raw", "schema") and isinstance(item, dict) else item for name, item in value.items()
    }


def told(wire: str, reply: Reply) -> Json:
    """A reply as `reply.json` writes it: what is empty is left out."""
    usage = {name: count for name, count in zip(COUNTS, seen(wire, replace(reply, blocks=())).usage, strict=True) if count}
    whole = {
        "id": reply.id,
        "model": reply.model,
        "blocks": [_told_block(wire, block) for block in reply.blocks],
        "stop": {"reason": reply.stop.reason, "raw": reply.stop.raw, "detail": reply.stop.detail},
        "usage": usage,
        "notices": [name for name, _ in reply.notices],
    }
    plain: Json = json.loads(json.dumps(whole))
    return {name: value for name, value in plain.items() if value}


def _told_block(wire: str, block: Block) -> Json:
    if isinstance(block, ImageBlock) and isinstance(block.source, Inline):
        media = {"kind": block.kind, "media_type": block.media_type, "data": block.source.data}
        return media | ({"sealed": json.loads(block.seal.data)} if block.seal else {})
    one = piece(wire, block)
    said = {name: value for name, value in vars(one).items() if value or name == "kind"}
    return said | ({"arguments": one.arguments} if one.kind == "call" else {})


def complaint(error: EvenerError) -> Json:
    """An error as `error.json` writes it."""
    said: Json = {"error": type(error).__name__, "retryable": error.retryable}
    if isinstance(error, ProviderError):
        said |= {"message": error.message, "code": error.code, "status": error.status, "request_id": error.request_id}
        said |= {"retry_after": error.retry_after, "used": getattr(error, "used", 0), "limit": getattr(error, "limit", 0)}
    return {name: value for name, value in said.items() if value not in ("", 0, None) or value is False}
