"""Reads JSON whose lesser fields are of another form than we know: takes them out and hands them on as notices. Pure.

Only what a typed reader has refused comes here, so the usual answer pays nothing. A wire says which fields carry the answer
(text, calls, why it stopped, and what tells one thing from another): those must be of their form, all others need not be.
What is taken out is kept verbatim in a notice under its path. A lone half of a surrogate pair becomes U+FFFD, and a number
that JSON does not have (NaN, Infinity) becomes null.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from evener.errors import WireError
from evener.transcript.delta import Delta, Notice
from evener.wire.text import dumps, fields

__all__ = ["BROKEN", "Carrying", "Count", "Place", "has_text", "mend", "pair_halves", "parse_some", "read_some"]

T = TypeVar("T")
BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoders raise on bytes that are not what they should be."""

Carrying = Mapping[type, tuple[str, ...]]
"""By form, the fields that carry the answer: where one of them is of another form, the answer cannot be read."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] | Annotated[float, msgspec.Meta(ge=0, le=1 << 53)] | None
"""A token count. Anything else that stands in its place counts nothing."""

Place = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)] | None
"""A whole number that can be stored."""

HALVES = re.compile(rb"((?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F]))*+)((?:\\u[dD][89a-fA-F][0-9a-fA-F]{2})++)?", re.DOTALL)
"""JSON text up to the next escapes of surrogates, and these."""
NO_NUMBERS = re.compile(rb'"(?:[^"\\]|\\.)*+"|(-?(?:NaN|Infinity)\b)', re.DOTALL)
REPLACEMENT = "\ufffd"
NOTHING: Carrying = {}
TELLING = frozenset(
    {"answer", "completion", "content", "generated_text", "message", "output", "output_text", "response", "text"}
)
"""Names under which servers put what a model said."""


def mend(text: bytes, form_of: Callable[[bytes], object], carrying: Carrying) -> tuple[bytes, list[Notice]]:
    """The JSON without what does not fit its form, and a notice for each part of it that was taken out.

    Raises `msgspec.MsgspecError` where a carrying field does not fit.
    """
    notices: list[Notice] = []
    text = text.strip()
    if text[:1] not in (b"{", b"["):
        raise msgspec.ValidationError("no JSON object")
    text = _repaired(text, notices)
    found = _Mending(carrying, notices).fit(msgspec.Raw(text), form_of(text), "", carried=True)
    return bytes(found or text), notices


def parse_some(body: bytes, form: type[T], what: str, carrying: Carrying, found: list[Delta]) -> T:
    """A typed document without what does not fit, which is added to `found`; or a WireError that says what was expected."""
    read = _reader(cast("object", form)).decode
    try:
        value = read(body)
    except BROKEN as error:
        try:
            mended, notices = mend(body, lambda _: form, carrying)
            value = read(mended)
        except BROKEN:
            start = body[:60].decode(errors="replace")
            raise WireError(f"Expected {what}, but the bytes are not: {error}. They begin with {start!r}.") from None
        found += notices
    return cast("T", value)


def read_some(raw: bytes | msgspec.Raw, form: type[T], where: str, found: list[Delta], carrying: Carrying = NOTHING) -> T:
    """What can be read of an object; what cannot is added to `found` as notices under this path.

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
    """JSON text with U+FFFD for each escape that is half of a surrogate pair."""
    return _paired(text.encode())[0].decode()


def _paired(text: bytes) -> tuple[bytes, int]:
    """The text without lone halves of surrogate pairs, and how many there were."""
    halves = 0

    def told(match: re.Match[bytes]) -> bytes:
        nonlocal halves
        if match[2] is None:
            return match[0]
        units = match[2].decode("unicode_escape").encode("utf-16-le", "surrogatepass")
        found = units.decode("utf-16-le", "replace")
        lone = found.count(REPLACEMENT)
        halves += lone
        return match[1] + found.encode() if lone else match[0]

    return (HALVES.sub(told, text), halves) if b"\\u" in text else (text, 0)


def _numbered(text: bytes) -> tuple[bytes, int]:
    """The text with null for what is no number in JSON, and how many there were."""
    if b"NaN" not in text and b"Infinity" not in text:
        return text, 0
    count = sum(match[1] is not None for match in NO_NUMBERS.finditer(text))
    return NO_NUMBERS.sub(lambda match: match[0] if match[1] is None else b"null", text), count


def _repaired(text: bytes, notices: list[Notice]) -> bytes:
    """The text as JSON, with a notice of what had to be replaced in it."""
    text, halves = _paired(text)
    text, numbers = _numbered(text)
    for name, count in (("lone surrogate", halves), ("not a number", numbers)):
        if count:
            notices.append(Notice(name, f'{{"replaced":{count}}}'))
    return text


class _Mending:
    """One text while it is mended."""

    def __init__(self, carrying: Carrying, notices: list[Notice]) -> None:
        self.carrying = carrying
        self.notices = notices

    def fit(self, raw: msgspec.Raw, form: object, where: str, *, carried: bool) -> msgspec.Raw | None:
        """The JSON as far as it fits the form; None when nothing of it does."""
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
    """The forms of which a value may have one."""
    if get_origin(form) is Annotated:
        return _forms(get_args(form)[0])
    if get_origin(form) in (Union, UnionType):
        return tuple(inner for one in get_args(form) for inner in _forms(one))
    return (form,)


def _is_tagged(raw: msgspec.Raw, form: type[msgspec.Struct]) -> bool:
    tag = form.__struct_config__.tag
    return tag is None or bytes(fields(raw).get("type", msgspec.Raw(b""))) == dumps(tag)
