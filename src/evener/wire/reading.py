"""Reads foreign JSON: `Fields` for requests, field by field, and `mend` for answers that do not fit their types. Pure.

`mend` gets only what a typed decoder has refused, so the usual answer pays nothing. A wire lists which fields carry the answer
(text, calls, why it stopped, and what tells one thing from another): those must be of their form, all others need not be.
What is taken out is kept verbatim in a notice under its path. A lone half of a surrogate pair becomes U+FFFD, and a number
that JSON does not have (NaN, Infinity) becomes null.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from types import UnionType
from typing import Annotated, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from evener.errors import UsageError, WireError
from evener.transcript.ask import Ask, Extra
from evener.transcript.blocks import Block, CacheTtl, Citation, HostedBlock, Origin, ReasoningBlock, Seal, TextBlock
from evener.transcript.delta import Delta, Notice
from evener.wire.prefix import MESSAGE, dumps, fields, text_in

T = TypeVar("T")
NULL = b"null"
Items = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=100_000)]
"""A list in a request, each item still JSON. No provider takes more, and each costs microseconds."""
NOTHING = msgspec.Raw(b"null")
CONTROLS: dict[str, CacheTtl] = {"": "5m", "5m": "5m", "1h": "1h"}
BREAKPOINTS: dict[str, CacheTtl] = {"": "30m", "30m": "30m", "12h": "12h"}
"""The lifetime of a mark, by the one that it names."""


class Fields:
    """The fields of one object. Reading a field takes it; `rest` is what was not taken. A null reads as absent but stays.

    A field of another form than expected reads as absent and stays, too, so that an odd field never spoils those beside it.
    Only `carried_text` and `carried_items` refuse it: what they read is essential to a request.
    """

    def __init__(self, own: dict[str, msgspec.Raw]) -> None:
        self._own = own

    def has(self, name: str) -> bool:
        """True if the field is there and not null."""
        return name in self._own and bytes(self._own[name]) != NULL

    def is_text(self, name: str) -> bool:
        """True if the field is a string."""
        return name in self._own and bytes(self._own[name])[:1] == b'"'

    def is_object(self, name: str) -> bool:
        """True if the field is an object."""
        return name in self._own and bytes(self._own[name])[:1] == b"{"

    def take(self, name: str) -> msgspec.Raw:
        """Take a field's JSON; null when absent."""
        return self._own.pop(name, NOTHING)

    def take_object(self, name: str, default: str) -> str:
        """Take the JSON text of a field that is an object; the default when it is absent. Anything else stays."""
        if self.is_object(name):
            return bytes(self._own.pop(name)).decode()
        if not self.has(name):
            self._own.pop(name, None)
        return default

    def put(self, name: str, raw: str) -> None:
        """Put back what was left of a field."""
        self._own[name] = msgspec.Raw(raw.encode())

    def put_rest(self, name: str, inner: "Fields") -> None:
        """Put what was not taken of an object in its place; take the object away when nothing is left."""
        if inner.rest():
            self.put(name, inner.rest_text())
        else:
            self._own.pop(name, None)

    def peek_raw(self, name: str) -> msgspec.Raw:
        """Return a field's JSON, left in place."""
        return self._own.get(name, NOTHING)

    def peek(self, name: str) -> str:
        """Return a string field, left in place; empty when it is absent or something else."""
        return text_in(self._own[name]) if self.is_text(name) else ""

    def peek_fields(self, name: str) -> "Fields":
        """Return the fields of an object, which is left in place; none when it is absent or something else."""
        return Fields(fields(self._own[name])) if self.is_object(name) else Fields({})

    def peek_items(self, name: str) -> list[msgspec.Raw]:
        """Return the items of a list, which is left in place; none when it is absent or something else."""
        return msgspec.json.decode(self._own[name], type=Items) if bytes(self.peek_raw(name))[:1] == b"[" else []

    def text(self, name: str) -> str:
        """Take a string field."""
        return self._read(name, str, "")

    def said(self, name: str) -> str:
        """Take a string field; an empty one stays, because the request states that it is empty."""
        return self.text(name) if self.peek(name) else ""

    def carried_text(self, name: str) -> str:
        """Take a string field; raise when it is something else."""
        return self._read(name, str, "", carried=True)

    def flag(self, name: str) -> bool | None:
        """Take a boolean field."""
        return self._read(name, bool | None, None)  # type: ignore[arg-type]

    def whole(self, name: str, least: int | None = None) -> int | None:
        """Take an integer field, not below `least`."""
        kind = int if least is None else Annotated[int, msgspec.Meta(ge=least)]
        return self._read(name, kind | None, None)  # type: ignore[arg-type]

    def limit(self, name: str) -> int | None:
        """Take a number of tokens; what is none, as 0, stays where it is: only its wire knows what it means."""
        return self.whole(name, 1)

    def number(self, name: str) -> float | None:
        """Take a number field, integers kept as such. A negative one has a meaning only on its wire, and stays where it is."""
        if bytes(self.peek_raw(name)).startswith(b"-"):
            return None
        found: float | None = self._read(name, int | float | None, None)  # type: ignore[arg-type]
        return found

    def carried_items(self, name: str) -> list[msgspec.Raw]:
        """Take a list field, each item still JSON; raise when it is something else."""
        return self._read(name, Items, [], carried=True)

    def texts(self, name: str) -> list[str]:
        """Take a list of strings."""
        return self._read(name, list[str], [])

    def rest(self) -> dict[str, msgspec.Raw]:
        """Return the fields that were not taken."""
        return self._own

    def rest_text(self) -> str:
        """Return the fields that were not taken, as JSON text; empty when there are none."""
        return dumps(self._own).decode() if self._own else ""

    def _read(self, name: str, kind: type[T], default: T, *, carried: bool = False) -> T:
        if not self.has(name):
            return default
        try:
            value = msgspec.json.decode(self._own[name], type=kind)
        except msgspec.ValidationError as error:
            if carried:
                raise msgspec.ValidationError(f"{error} - in `{name}`") from None
            return default
        del self._own[name]
        return value


def read_fields(raw: bytes | msgspec.Raw) -> Fields:
    """Return the fields of a JSON object."""
    return Fields(fields(raw))


def raw_text(raw: msgspec.Raw, default: str) -> str:
    """Return JSON as text; the default for null."""
    text = bytes(raw).decode()
    return default if text == "null" else text


def read_control(own: Fields) -> CacheTtl:
    """Read the mark `cache_control`. It is taken in its known form; one with more fields counts, too, and stays."""
    return _read_mark(own, "cache_control", ("type", "ephemeral"), CONTROLS)


def read_breakpoint(own: Fields) -> CacheTtl:
    """Read the mark `prompt_cache_breakpoint`. It is taken in its known form; one with more fields counts, too, and stays."""
    return _read_mark(own, "prompt_cache_breakpoint", ("mode", "explicit"), BREAKPOINTS)


def _read_mark(own: Fields, name: str, known: tuple[str, str], lifetimes: dict[str, CacheTtl]) -> CacheTtl:
    """Return the lifetime of a mark; the usual one where it names an unknown one. Empty when there is no mark."""
    mark = own.peek_fields(name)
    if mark.peek(known[0]) != known[1]:
        return ""
    mark.take(known[0])
    if not mark.has("ttl") or mark.peek("ttl") in lifetimes:
        lifetime = lifetimes[mark.text("ttl")]
        if not mark.rest():
            own.take(name)
        return lifetime
    return lifetimes[""]


def read_citations(raws: Iterable[msgspec.Raw], read: Callable[[msgspec.Raw], Citation]) -> tuple[Citation, ...]:
    """Return the citations of a text; one of an unknown form is left out, and stays in the seal of its text."""
    found: list[Citation] = []
    for raw in raws:
        with suppress(msgspec.ValidationError):
            found.append(read(raw))
    return tuple(found)


def keep_beside(blocks: tuple[Block, ...], own: Fields, maker: Origin) -> tuple[Block, ...]:
    """Return the blocks of a message; the first that can be sealed holds the fields of the message that were not taken."""
    if not own.rest():
        return blocks
    for number, block in enumerate(blocks):
        if not isinstance(block, HostedBlock | ReasoningBlock):
            before = fields(block.seal.data) if block.seal else {}
            seal = Seal(dumps({**before, MESSAGE: own.rest()}).decode(), maker, id=block.seal.id if block.seal else "")
            return (*blocks[:number], replace(block, seal=seal), *blocks[number + 1 :])
    return (*blocks, TextBlock("", seal=Seal(dumps({MESSAGE: own.rest()}).decode(), maker)))


def make_seal(data: str, maker: Origin, id: str = "") -> Seal | None:
    """Return a seal with these fields; None when there are none."""
    return Seal(data, maker, id=id) if data else None


def with_rest(ask: Ask, body: Fields) -> Ask:
    """Return the ask with the fields of the body that were not taken as `extra`."""
    rest = body.rest_text()
    return replace(ask, extra=(Extra(ask.target.wire, rest, provider=ask.target.provider),)) if rest else ask


def message_id(number: int, raw: msgspec.Raw) -> str:
    """Return an id for a message that came without one: the same request always gives the same ids."""
    return f"{number}-{blake2b(bytes(raw), digest_size=6).hexdigest()}"


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn every way in which foreign JSON can be wrong into one clear error."""
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, UsageError) as error:
        raise WireError(f"Expected {what}: {error}. Check which wire the body is for.") from None


BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of decoders on bytes that are not what was expected."""

Carrying = Mapping[type, tuple[str, ...]]
"""By form, the fields that carry the answer: where one of them is of another form, the answer cannot be read."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] | Annotated[float, msgspec.Meta(ge=0, le=1 << 53)] | None
"""A token count. Any other value in its place is ignored."""

Place = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)] | None
"""A whole number that can be stored."""

HALVES = re.compile(rb"((?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F]))*+)((?:\\u[dD][89a-fA-F][0-9a-fA-F]{2})++)?", re.DOTALL)
"""JSON text up to the next escapes of surrogates, and these."""
NO_NUMBERS = re.compile(rb'"(?:[^"\\]|\\.)*+"|(-?(?:NaN|Infinity)\b)', re.DOTALL)
REPLACEMENT = "\ufffd"
NONE_CARRY: Carrying = {}
TELLING = frozenset(
    {"answer", "completion", "content", "generated_text", "message", "output", "output_text", "response", "text"}
)
"""Field names under which servers put the text of a model."""


def mend(text: bytes, form_of: Callable[[bytes], object], carrying: Carrying) -> tuple[bytes, list[Notice]]:
    """Return the JSON without what does not fit its form, and a notice for each part that was taken out.

    Raises `msgspec.MsgspecError` where a carrying field does not fit.
    """
    notices: list[Notice] = []
    text = text.strip()
    if text[:1] not in (b"{", b"["):
        raise msgspec.ValidationError("no JSON object")
    text = _repair_text(text, notices)
    found = _Mending(carrying, notices).fit(msgspec.Raw(text), form_of(text), "", carried=True)
    return bytes(found or text), notices


def parse_some(body: bytes, form: type[T], what: str, carrying: Carrying, found: list[Delta]) -> T:
    """Return a typed document; add what does not fit to `found`. Raise a WireError that says what was expected."""
    read = _reader(cast("object", form)).decode
    try:
        value = read(body)
    except BROKEN as error:
        try:
            mended, notices = mend(body, lambda _: form, carrying)
            value = read(mended)
        except BROKEN:
            start = body[:60].decode(errors="replace")
            raise WireError(
                f"Expected {what}, but the bytes cannot be read as that: {error}. They begin with {start!r}."
            ) from None
        found += notices
    return cast("T", value)


def read_some(raw: bytes | msgspec.Raw, form: type[T], where: str, found: list[Delta], carrying: Carrying = NONE_CARRY) -> T:
    """Return what can be read of an object; add the rest to `found` as notices under this path.

    Raises `msgspec.MsgspecError` where a carrying field does not fit.
    """
    mending = _Mending(carrying, [])
    fit = mending.fit(msgspec.Raw(bytes(raw)), form, where, carried=False)
    found += mending.notices
    if fit is None:
        found.append(Notice(where, bytes(raw).decode(errors="replace") or "null"))
        return form()
    return cast("T", _reader(cast("object", form)).decode(fit))


def has_text(frame: bytes) -> bool:
    """True if an answer holds a text where the decoder does not look for it."""
    try:
        return _tells(msgspec.json.decode(frame))
    except BROKEN:
        return False


def _tells(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_tells, value))
    if not isinstance(value, dict):
        return False
    return any((isinstance(one, str) and bool(one) and name in TELLING) or _tells(one) for name, one in value.items())


def pair_halves(text: str) -> str:
    """Return JSON text with U+FFFD for each escape that is half of a surrogate pair."""
    return _pair(text.encode())[0].decode()


def _pair(text: bytes) -> tuple[bytes, int]:
    """Return the text without lone halves of surrogate pairs, and how many there were."""
    halves = 0

    def replace_lone(match: re.Match[bytes]) -> bytes:
        nonlocal halves
        if match[2] is None:
            return match[0]
        units = match[2].decode("unicode_escape").encode("utf-16-le", "surrogatepass")
        found = units.decode("utf-16-le", "replace")
        lone = found.count(REPLACEMENT)
        halves += lone
        return match[1] + found.encode() if lone else match[0]

    return (HALVES.sub(replace_lone, text), halves) if b"\\u" in text else (text, 0)


def _replace_non_numbers(text: bytes) -> tuple[bytes, int]:
    """Return the text with null for NaN and Infinity, and how many there were."""
    if b"NaN" not in text and b"Infinity" not in text:
        return text, 0
    count = sum(match[1] is not None for match in NO_NUMBERS.finditer(text))
    return NO_NUMBERS.sub(lambda match: match[0] if match[1] is None else b"null", text), count


def _repair_text(text: bytes, notices: list[Notice]) -> bytes:
    """Return the text as JSON, with a notice of what had to be replaced in it."""
    text, halves = _pair(text)
    text, numbers = _replace_non_numbers(text)
    for name, count in (("lone surrogate", halves), ("not a number", numbers)):
        if count:
            notices.append(Notice(name, f'{{"replaced":{count}}}'))
    return text


class _Mending:
    """One text that is being mended."""

    def __init__(self, carrying: Carrying, notices: list[Notice]) -> None:
        self.carrying = carrying
        self.notices = notices

    def fit(self, raw: msgspec.Raw, form: object, where: str, *, carried: bool) -> msgspec.Raw | None:
        """Return the JSON as far as it fits the form; None when nothing of it does."""
        why = _misfit(raw, form)
        if why is None:
            return raw
        found = self._part(raw, form, where, carried=carried)
        if found is None and carried:
            raise msgspec.ValidationError(str(why))
        return found

    def _part(self, raw: msgspec.Raw, form: object, where: str, *, carried: bool) -> msgspec.Raw | None:
        start = bytes(raw)[:1]
        for one in _forms(form):
            if start == b"{" and isinstance(one, type) and issubclass(one, msgspec.Struct) and _is_tagged(raw, one):
                return self._object(raw, one, where)
            if start == b"[" and get_origin(one) is list:
                return self._list(raw, one, where, carried=carried)
        return None

    def _object(self, raw: msgspec.Raw, form: type[msgspec.Struct], where: str) -> msgspec.Raw | None:
        own = fields(raw)
        carrying = self.carrying.get(form, ())
        for name, hint in _hints(form).items():
            if name in own:
                path = f"{where}.{name}" if where else name
                fit = self.fit(own[name], hint, path, carried=name in carrying)
                if fit is None:
                    self.notices.append(Notice(path, bytes(own.pop(name)).decode()))
                else:
                    own[name] = fit
        found = msgspec.Raw(dumps(own))
        return found if _misfit(found, form) is None else None

    def _list(self, raw: msgspec.Raw, form: object, where: str, *, carried: bool) -> msgspec.Raw | None:
        (kind,) = get_args(form)
        kept = []
        for item in msgspec.json.decode(raw, type=list[msgspec.Raw]):
            fit = self.fit(item, kind, where, carried=carried)
            if fit is None:
                self.notices.append(Notice(where, bytes(item).decode()))
            else:
                kept.append(fit)
        found = msgspec.Raw(dumps(kept))
        return found if _misfit(found, form) is None else None


def _misfit(raw: msgspec.Raw, form: object) -> Exception | None:
    try:
        _reader(form).decode(raw)
    except BROKEN as error:
        return error
    return None


@cache
def _reader(form: object) -> msgspec.json.Decoder[object]:
    return msgspec.json.Decoder(cast("type[object]", form))


@cache
def _hints(form: type[msgspec.Struct]) -> dict[str, object]:
    return {name: hint for name, hint in get_type_hints(form, include_extras=True).items() if name in form.__struct_fields__}


@cache
def _forms(form: object) -> tuple[object, ...]:
    """Return the forms that a value may have: the members of a union."""
    if get_origin(form) is Annotated:
        return _forms(get_args(form)[0])
    if get_origin(form) in (Union, UnionType):
        return tuple(inner for one in get_args(form) for inner in _forms(one))
    return (form,)


def _is_tagged(raw: msgspec.Raw, form: type[msgspec.Struct]) -> bool:
    tag = form.__struct_config__.tag
    return tag is None or bytes(fields(raw).get("type", msgspec.Raw(b""))) == dumps(tag)
