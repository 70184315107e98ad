"""How encoders write messages: JSON helpers, seals, the cached prefix of a conversation, and `ExchangeWriter`. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter

import msgspec
from msgspec.structs import force_setattr

from evener.errors import BadValue
from evener.transcript.ask import FREE_INPUT, Ask, ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    Remote,
    ResultContent,
    Seal,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.loss import Loss, LossKind, loss_in, loss_of
from evener.transcript.message import Message
from evener.transcript.repair import Exchange, Repair, RepairRules
from evener.transcript.transcript import Node, Transcript
from evener.wire.quirks import Quirks

UNREADABLE = "_unreadable_arguments"
"""The key for arguments of a call that are not a JSON object."""

OPERATOR = "[instruction from the operator, not from the user]\n"
"""How a system message begins where it can only be sent as the user's."""

ERROR = "ERROR: "
"""How a failed tool's result begins where there is no flag for it."""

dumps: Callable[[object], bytes] = msgspec.json.Encoder().encode
"""JSON bytes."""

fields: Callable[[str | bytes | msgspec.Raw], dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""The fields of a JSON object, each still as its own text."""


def dict_of(value: object) -> dict[str, object]:
    """Return the value if it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}


def with_tool_extra(own: dict[str, object], tool: ToolSpec, wire: str, losses: list[Loss]) -> dict[str, object]:
    """Add the fields that only this wire knows to a tool's declaration; those of another wire are reported."""
    if not tool.extra:
        return own
    if tool.wire == wire:
        return {**own, **fields(tool.extra)}
    if names := ", ".join(list_telling_fields(tool.extra)):
        losses.append(loss_of("dropped", "tool.fields", f"only {tool.wire} knows {names}", name=tool.name))
    return own


def list_telling_fields(raw: str) -> list[str]:
    """Return the names of the fields of an object that are not empty."""
    found: list[str] = []
    for name, value in fields(raw).items():
        inner = list_telling_fields(bytes(value).decode()) if bytes(value)[:1] == b"{" else None
        if (inner is None and bytes(value) not in (b"null", b'""')) or inner:
            found.append(name)
    return found


def as_object(raw: str) -> msgspec.Raw | None:
    """Return JSON text that is an object, ready to be embedded; None when it is not one."""
    try:
        fields(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return msgspec.Raw(raw.encode())


def is_plain(block: ResultContent) -> bool:
    """True if a block is text and nothing else, so that a bare string can stand for it."""
    return type(block) is TextBlock and block.seal is None and not block.citations and not block.cache


def placeholder(block: ImageBlock | DocumentBlock | HostedBlock) -> str:
    """Return one readable line in place of what a wire cannot carry."""
    if isinstance(block, HostedBlock):
        return block.line
    what = "image" if isinstance(block, ImageBlock) else "document"
    match block.source:
        case Inline(data):
            where = f"{len(data) * 3 // 4} bytes"
        case Remote(url):
            where = url
        case Stored(digest):
            where = digest
        case Uploaded(file_id):
            where = file_id
    kind = block.media_type or "unknown type"
    return f"[{what} omitted: {kind}, {where}]"


def must_fetch(what: str) -> BadValue:
    """Return the error for media in our store that were not loaded before encoding."""
    return BadValue(f"The {what} is stored by digest and was not loaded. Replace its source by Inline(...) before encoding.")


def word(raw: msgspec.Raw | None) -> str:
    """Return a JSON value as a word to show: a string without its quotes, nothing for null."""
    return bytes(raw).decode(errors="replace").strip('"') if raw is not None and bytes(raw) != b"null" else ""


def free_text(call: ToolCall) -> str:
    """Return the text of a call of a free-text tool; all that was written where there is no such text."""
    own = as_object(call.raw)
    given = fields(own).get(FREE_INPUT) if own is not None else None
    return text_in(given) if given is not None and bytes(given)[:1] == b'"' else call.raw


def free_arguments(text: str) -> str:
    """Return the JSON object that stands for the text of a call of a free-text tool."""
    return dumps({FREE_INPUT: text}).decode()


def cut_arguments(text: str, *, free: bool) -> str:
    """Return the arguments of a call that was cut off, as far as they came: never a JSON object that was not written as one."""
    return "" if free and as_object(text) is not None else text


def text_in(raw: msgspec.Raw | None) -> str:
    """Return the text of a JSON string; empty for any other value."""
    return msgspec.json.decode(raw, type=str) if raw is not None and bytes(raw)[:1] == b'"' else ""


MESSAGE = "@message"
"""The field of a block's seal with the fields of its message, which has no seal of its own."""

OWN = "@own"
"""The field of a call's seal with the call as it was made, in a form of its maker's; it is never sent from there."""

# Bookkeeping fields of a provider: dropping them is no loss.
BOOKKEEPING = (OWN, "@field", "@more", "id", "index", "object", "role", "status", "type")
EMPTY = (b"null", b"[]", b"{}", b'""')
HOLDERS = (MESSAGE, "item", "part", "message", "own")
"""Names under which a seal groups its fields; the names below them count."""

LONGEST = 300
ASKED = ("action", "arguments", "code", "input", "queries", "query")  # the input of a tool, of any shape
GIVEN = (  # its outcome: only these names are followed
    *("content", "output", "outputs", "results", "tools", "document"),
    *("name", "url", "title", "filename", "text", "logs", "stdout", "stderr", "error", "error_code", "message", "return_code"),
)
SECRET = re.compile(r"encrypted|signature|^data$|b64|base64")
OPAQUE = re.compile(r"data:.*|[A-Za-z0-9+/_=-]{64,}", re.DOTALL)

SCOPES: dict[str, tuple[str, ...]] = {
    "wire": ("wire",),
    "provider": ("wire", "provider", "endpoint"),
    "account": ("wire", "provider", "endpoint", "account"),
    "model": ("wire", "provider", "endpoint", "account", "model"),
}


def why_shut(seal: Seal, target: Origin, quirks: Quirks, chain: "LazyChain | None" = None) -> str:
    """Return why a seal must stay behind, in words; empty when it may go. Without a chain it is not bound to what is before."""
    why = why_not_own(seal.origin, target, quirks)
    if why:
        return why
    if quirks.prefix_bound and seal.binding and chain is not None and seal.binding != chain.value.hex():
        return "something before it has changed since it was made"
    return ""


def why_not_own(origin: Origin, target: Origin, quirks: Quirks) -> str:
    """Return why the target does not own what the origin has made, in words; empty when it does."""
    if origin == target:
        return ""
    for fact in SCOPES[quirks.seal_scope]:
        made, asked = getattr(origin, fact), getattr(target, fact)
        if made != asked:
            return f"it was made by another {fact} ({made or 'unknown'}, not {asked or 'unknown'})"
    return ""


def list_telling(data: str | msgspec.Raw) -> Iterator[str]:
    """Yield the names of a seal's fields that carry content, so that dropping them is a loss."""
    for name, value in fields(data).items():
        if name in HOLDERS and bytes(value)[:1] == b"{":
            yield from list_telling(value)
        elif name not in BOOKKEEPING and bytes(value) not in EMPTY:
            yield name


def line_of(own: Mapping[str, msgspec.Raw], named: Iterable[str]) -> str:
    """Return the fields in `named` as words, then the input and the outcome."""
    named = tuple(named)
    head = " ".join(found for name in named if (found := word(own.get(name))))
    said = {name: value_in(raw) for name, raw in own.items() if name not in named}
    words = "; ".join(_words(said))
    line = f"{head}: {words}" if words else head
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def value_in(raw: msgspec.Raw) -> object:
    """Return a value that is read for people only; None for one that this machine cannot hold, such as 1e999."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _words(value: object) -> Iterator[str]:
    match value:
        case str():
            if value.strip() and not OPAQUE.fullmatch(value):
                yield value
        case list():
            for one in value:
                yield from _words(one)
        case dict():
            for name, one in value.items():
                if name in ASKED:
                    clean = _clean(one)
                    yield from _words(clean if isinstance(clean, str) else dumps(clean).decode() if clean else "")
                elif name in GIVEN:
                    yield from _words(one)
        case int() | float():
            yield dumps(value).decode()
        case _:
            return


def _clean(value: object) -> object:
    """Return the value without unreadable parts (ciphers, signatures, base64)."""
    match value:
        case dict():
            return {name: _clean(one) for name, one in value.items() if not SECRET.search(str(name))}
        case list():
            return [_clean(one) for one in value]
        case str():
            return "..." if OPAQUE.fullmatch(value) else value
        case _:
            return value


MarkPlace = tuple[int, str]
"""A place in a fragment where a cache mark may be put, and the lifetime asked for there (empty: none asked)."""


class Fragment(msgspec.Struct, frozen=True, gc=False):
    """One exchange on the wire.

    `marks` lists, in order, the places for marks. `lean` is the same exchange without its reasoning, for rows that replay
    only the latest. `first` names the first message. Traits: `assistant_first`, `assistant_last`; `asks`: a user wrote in
    it, so earlier reasoning is history; `paused`: the provider needs it back; `bare_calls`: it has calls and no reasoning;
    `marked`: it requests a cache mark.
    """

    data: bytes
    marks: tuple[MarkPlace, ...] = ()
    losses: tuple[Loss, ...] = ()
    lean: "Fragment | None" = None
    first: str = ""
    traits: frozenset[str] = frozenset()


data_of = attrgetter("data")
"""The bytes of a fragment, for loops over all of them: each request has one, and in C it costs a third."""


class PrefixKey(msgspec.Struct, frozen=True):
    """Everything that affects a fragment beside its messages. A prefix made with another key cannot be reused."""

    parts: tuple[object, ...]
    rules: RepairRules
    seed: bytes


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """The encoded past of one transcript, up to `node`.

    `open` is the exchange that may still change, as it goes out now; the settled ones are before it. `marked` numbers the
    settled fragments that ask for cache marks, `lossy` those that have losses; `traits` are those of any of them. `linked` is
    how many fragments were fingerprinted so far, and their fingerprint: as a rule none, as only a seal asks for it.
    """

    key: PrefixKey
    repair: Repair
    linked: tuple[int, bytes]
    node: Node | None = None
    fragments: tuple[Fragment, ...] = ()
    marked: tuple[int, ...] = ()
    lossy: tuple[int, ...] = ()
    traits: frozenset[str] = frozenset()
    open: tuple[Exchange, Fragment] | None = None

    @property
    def chain(self) -> bytes:
        """The fingerprint of the settled fragments. Computed on demand, and kept for the prefixes that go on from here."""
        count, chain = self.linked
        if count < len(self.fragments):
            chain = extend_chain(chain, *self.fragments[count:])
            force_setattr(self, "linked", (len(self.fragments), chain))
        return chain

    @property
    def tip(self) -> bytes:
        """The chain with the open exchange: what an answer rests on."""
        return extend_chain(self.chain, self.open[1]) if self.open else self.chain


class LazyChain(msgspec.Struct, eq=False, gc=False):
    """The fingerprint of everything before an exchange that is being written. Computed only if a seal needs it."""

    prior: Prefix
    fresh: list[Fragment]
    linked: tuple[int, bytes] = (0, b"")

    @property
    def value(self) -> bytes:
        """The fingerprint."""
        count, chain = self.linked
        chain = extend_chain(chain or self.prior.chain, *self.fresh[count:])
        self.linked = (len(self.fresh), chain)
        return chain

    def after(self) -> tuple[int, bytes]:
        """Return what is known of the chain, for the next prefix."""
        count, chain = self.linked
        return (len(self.prior.fragments) + count, chain) if chain else self.prior.linked


Render = Callable[[Exchange, LazyChain], Fragment]
"""A wire's way to write one exchange, given the chain before it."""


def start_prefix(parts: tuple[object, ...], rules: RepairRules, seed: bytes) -> Prefix:
    """Return the prefix of no messages."""
    return Prefix(PrefixKey(parts, rules, seed), Repair(rules), (0, seed))


def extend_prefix(prior: Prefix | None, start: Prefix, transcript: Transcript, render: Render) -> Prefix:
    """Return the prefix of a transcript: from `prior` on if it fits, else from the start. The result is the same."""
    key = start.key
    new: Sequence[Message] | None = None
    if prior is not None and (prior.key is key or prior.key == key):
        new = transcript.grown_from(prior.node)
    if prior is None or new is None:
        prior, new = start, transcript.messages
    marked, lossy, traits = prior.marked, prior.lossy, prior.traits
    known, written = prior.open or (None, None)
    state, settled, last = prior.repair.advance(new, known)
    fresh: list[Fragment] = []
    chain = LazyChain(prior, fresh)
    for exchange in settled:
        if written is not None and (exchange is known or exchange == known):  # it goes out as it did when it was open
            fragment = written
        else:
            fragment = render(exchange, chain)
        written = None
        number = len(prior.fragments) + len(fresh)
        if "marked" in fragment.traits:
            marked += (number,)
        if fragment.losses or (fragment.lean and fragment.lean.losses):
            lossy += (number,)
        if not fragment.traits <= traits:
            traits |= fragment.traits
        fresh.append(fragment)
    fragments = (*prior.fragments, *fresh) if fresh else prior.fragments
    opened = None if last is None else (last, render(last, chain))
    return Prefix(key, state, chain.after(), transcript.head, fragments, marked, lossy, traits, opened)


def extend_chain(chain: bytes, *fragments: Fragment) -> bytes:
    """Return the chain with more fragments."""
    for fragment in fragments:
        chain = link(chain, fragment.data)
    return chain


def link(chain: bytes, data: bytes) -> bytes:
    """Return the chain with one more piece."""
    return blake2b(data, digest_size=16, key=chain).digest() if data else chain


def join_body(opening: bytes, fragments: Sequence[bytes], closing: bytes) -> bytes:
    """Return a whole body: fragments joined by commas, between opening and closing. Copies each byte of the past once."""
    if not fragments:
        return opening + closing
    pieces = list(fragments)
    pieces[0] = opening + pieces[0]
    pieces[-1] += closing
    return b",".join(pieces)


Sealed = TextBlock | ImageBlock | DocumentBlock | ToolCall | ToolResult
CITED = ("annotations", "citations")
"""Fields of a seal that hold citations, which are reported on their own."""
OWN_MARKS = frozenset(("cache_control", "prompt_cache_breakpoint"))
"""Cache marks with more fields than ours: they stay on their block as they came."""
ASKS, MARKED = frozenset(("asks",)), frozenset(("marked",))
"""Traits of a fragment."""


class ExchangeWriter(msgspec.Struct, eq=False, gc=False):
    """The bytes of an exchange that is being written."""

    ask: Ask
    quirks: Quirks
    chain: LazyChain | None = None
    mute: str = ""  # why no thinking is replayed, if so
    leads: bool = False  # a turn that has thinking must begin with it
    message: Message | None = None  # the one that is written
    size: int = 0
    comma: bytes = b""  # what stands before the next block of a message
    start: int = 0  # where the content of the current message begins
    thought: bool = False  # thinking was written
    shut: bool = False  # a seal of this turn was dead: those after it rest on it and are dead, too
    place: int = 0  # the last one where a mark may stand; 0: none yet
    traits: frozenset[str] = frozenset()  # of the fragment, beside those that its messages tell
    pieces: list[bytes] = []
    marks: list[MarkPlace] = []  # those that were asked for
    losses: list[Loss] = []
    free_tools: frozenset[str] = frozenset()  # the names of tools that take free text, where the wire has some
    free: list[str] = []  # the ids of calls that were written with a text instead of arguments
    beside: dict[str, msgspec.Raw] = {}  # fields of the message that only its maker knows

    def write(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size += len(data)

    def block(self, value: dict[str, object], cache: str = "", lead: bytes = b"") -> None:
        """Write a block and remember that a mark may stand before its last brace. What leads it stands before it."""
        data = lead + dumps(value)
        self.pieces.append(data)
        self.size = size = self.size + len(data)
        if cache:
            if not OWN_MARKS.isdisjoint(value):
                return  # it holds its provider's own mark already
            self.marks.append((size - 1, cache))
        self.place = size - 1

    def mark(self, cache: str) -> None:
        """Remember that a mark may stand before the last brace."""
        self.place = self.size - 1
        if cache:
            self.marks.append((self.place, cache))

    def why_shut(self, seal: Seal) -> str:
        """Return why a seal must stay behind, in words; empty when it may go."""
        return why_shut(seal, self.ask.target, self.quirks, self.chain)

    def open_seal(self, block: Sealed) -> dict[str, msgspec.Raw]:
        """Return the fields that a block's provider put on it, if they may go; else none, and report what they held.

        They are checked like every seal, but are not bound to what stands before them: only thinking is.
        """
        if block.seal is None:
            self.report_citations(block, "their provider is not known")
            return {}
        why = why_shut(block.seal, self.ask.target, self.quirks)
        if not why:
            return self.hold_message_fields(fields(block.seal.data))
        self.report_citations(block, why)
        self.report_fields(block, list_telling(block.seal.data), why)
        return {}

    def hold_message_fields(self, own: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
        """Return the fields of a block without those of its message: these are written when it is closed."""
        own.pop(OWN, None)
        if MESSAGE in own:
            self.beside = fields(own.pop(MESSAGE))
        return own

    def close(self) -> None:
        """End the list of blocks of a message, and the message."""
        end = b"]}"
        if self.beside:
            end = b"]," + dumps(self.beside)[1:]
            self.beside = {}
        self.pieces.append(end)
        self.size += len(end)

    def report_citations(self, block: Sealed, why: str) -> None:
        """Report that a text's citations do not go, if it has any."""
        if type(block) is TextBlock and block.citations:
            self.drop("text.citations", why, block, at="citations")

    def report_fields(self, block: Sealed, names: Iterable[str], why: str) -> None:
        """Report the fields of a block that stay behind, if there are any."""
        cited = CITED if isinstance(block, TextBlock) and block.citations else ()
        if left := [name for name in names if name not in cited]:
            self.drop(f"{block.kind}.fields", f"{', '.join(left)}: {why}", block, at="seal")

    def speaks_reasoning(self, block: ReasoningBlock, why: str) -> bool:
        """True if reasoning that cannot go as such is to go as plain text. Report either."""
        if block.text.strip() and self.ask.foreign_reasoning == "text":
            self.degrade("reasoning", f"sent as plain text: {why}", block)
            return True
        self.drop("reasoning", why, block)
        return False

    def arguments(self, call: ToolCall) -> str:
        """Return the JSON text of a call's arguments, always an object."""
        if as_object(call.raw) is not None:
            return call.raw
        self.degrade("tool_call.arguments", f"they were not a JSON object; sent under {UNREADABLE!r}", call, at="raw")
        return dumps({UNREADABLE: call.raw}).decode()

    def rename(self, topic: str, block: Block, ours: str, sent: str) -> None:
        """Report a name that goes out instead of ours."""
        self.lose("renamed", topic, f"{ours!r} is not legal here; sent as {sent!r}", block)

    def drop(self, topic: str, why: str, block: Block | None = None, *, at: str = "") -> None:
        self.lose("dropped", topic, why, block, at=at)

    def degrade(self, topic: str, why: str, block: Block | None = None, *, at: str = "") -> None:
        self.lose("degraded", topic, why, block, at=at)

    def lose(self, kind: LossKind, topic: str, why: str, block: Block | None = None, *, name: str = "", at: str = "") -> None:
        """Report a loss in the message that is being written; `block` is the block concerned."""
        if self.message is None:  # the system prompt
            place = [str(number) for number, one in enumerate(self.ask.transcript.system_blocks) if one is block]
            self.losses.append(loss_of(kind, topic.replace("text.", "system."), why, at="/".join((*place[:1], at))))
        else:
            self.losses.append(loss_in(kind, topic, why, self.message, block, name=name, at=at))

    def fragment(self, exchange: Exchange, lean: Fragment | None) -> Fragment:
        """Return what was written. Of the marks, those that were asked for are kept, and the last place, for a moving mark."""
        said, back, traits = exchange.assistant, exchange.back, self.traits
        if said is not None:
            traits = traits.union(self._list_traits(said, back))
        if back and (type(back[0].blocks[0]) is not ToolResult or _is_asking(back)):
            traits = traits | ASKS if traits else ASKS
        marks: tuple[MarkPlace, ...] = ((self.place, ""),) if self.place else ()
        if self.marks:
            traits |= MARKED
            marks = (*self.marks, *(marks if self.marks[-1][0] != self.place else ()))
        losses = (*exchange.losses, *self.losses) if self.losses else exchange.losses
        first = said.id if said is not None else back[0].id if back else ""
        return Fragment(b"".join(self.pieces), marks, losses, lean, first, traits)

    def _list_traits(self, said: Message, back: Sequence[Message]) -> list[str]:
        """Return the traits of what the assistant said."""
        traits, last = ["assistant_first"], said.blocks[-1]
        if not back:
            traits.append("assistant_last")
        if type(last) is HostedBlock and last.is_for(self.ask.target):
            traits.append("paused")
        if not self.thought and (type(last) is ToolCall or said.calls):
            traits.append("bare_calls")
        return traits


def _is_asking(back: Sequence[Message]) -> bool:
    """True if these messages hold more than results."""
    for message in back:
        for block in message.blocks:
            if type(block) is not ToolResult:
                return True
    return False
