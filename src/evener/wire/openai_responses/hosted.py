"""Items that only this wire understands, kept verbatim: whose they are, what they wait for, and a line for elsewhere. Pure."""

import msgspec

from evener.transcript import delta as d
from evener.transcript.blocks import Citation, HostedBlock
from evener.wire.openai_responses.encode import PART, WIRE
from evener.wire.prefix import dumps, fields, line_of, word
from evener.wire.reading import Place, read_some


class _Cited(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    filename: str | None = None
    start_index: Place = None
    end_index: Place = None


def read_citation(raw: msgspec.Raw, found: list[d.Delta] | None = None) -> Citation:
    """Return one annotation of a text, as far as it can be read; the rest of it is added to `found`, as notices."""
    read = read_some(raw, _Cited, "annotation", [] if found is None else found)
    start, end = read.start_index, read.end_index
    title = read.title or read.filename or ""
    return Citation(read.url or "", title, "", -1 if start is None else start, -1 if end is None else end)


def is_answer(kind: str) -> bool:
    """True if an item is something the client sends back."""
    return kind.endswith("_output") or kind in ("mcp_approval_response", "compaction_trigger")


def hosted_part(raw: msgspec.Raw, provider: str = "") -> HostedBlock:
    """Return a part of a message or a result that only this wire understands."""
    block = hosted_block(raw, provider)
    return msgspec.structs.replace(block, raw=dumps({PART: raw}).decode(), opens="", closes="")


def hosted_block(raw: msgspec.Raw, provider: str = "") -> HostedBlock:
    """Return an item of the provider's own."""
    own = fields(raw)
    kind, call = word(own.get("type")), word(own.get("call_id"))
    if word(own.get("execution")) == "server":
        call = ""  # the client need not answer it
    opens = call if not is_answer(kind) else ""
    closes = call if is_answer(kind) else ""
    line = line_of(own, ("type", "name", "server_label", "status"))
    name = word(own.get("id"))
    return HostedBlock(bytes(raw).decode(), WIRE, line, opens=opens, closes=closes, id=name, provider=provider)
