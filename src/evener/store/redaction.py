"""The steps between content and the disk: the funnel removes secrets, the cipher encrypts the rest and binds it to its
place.

Both stores pass everything through here before it is stored: payloads, notes, titles, tags, blobs. No other code does
either.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Literal

import msgspec
from msgspec import inspect

from evener.errors import BadValue, EvenerError
from evener.events import Event, decode_event, encode_event, encode_events
from evener.store.cipher import Cipher, open_sealed
from evener.store.integrity.digests import MISFITS
from evener.transport.secrets import REDACTED, KeptNet, Net, known_net, known_secrets

PROSE = frozenset(
    "arguments description detail message metadata notices output problems quote raw result text title url what why".split()
)
"""Fields that people, models and tools write. Patterns are looked for here only; names, ids and digests stay what they are."""

NOTHING = Net()


class Funnel:
    """Removes secrets: by default every secret that this process has used, in all forms in which it may occur.

    `secrets` returns the secrets to look for, of 6 characters or more. `patterns` are regular expressions for other texts
    that must not be stored in prompts, answers, results, titles, tags and texts in blobs.
    """

    def __init__(
        self,
        *,
        secrets: Callable[[], Iterable[str]] = known_secrets,
        patterns: Iterable[str | re.Pattern[str]] = (),
    ) -> None:
        self._patterns = tuple(map(_compile, patterns))
        # All funnels share the net of the process: with thousands of keys it takes a second to make.
        self._present = known_net if secrets is known_secrets else _keep_net(secrets)

    def __repr__(self) -> str:
        return f"<Funnel with {len(self._patterns)} patterns>"

    def clean(self, payload: bytes) -> bytes:
        """Return an event or the body of a note, as JSON, without secrets. The same object when there is none."""
        net = self._present()
        if not net.may_hold(payload):
            if not self._patterns:
                return payload
            net = NOTHING
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, RecursionError):
            return self._blob(payload, net)
        cleaned = self._field(value, "", net, self._patterns)
        return payload if cleaned is value else msgspec.json.encode(cleaned)

    def events(self, events: tuple[Event, ...]) -> tuple[tuple[Event, ...], list[bytes]]:
        """Return events without secrets, and each as JSON. The same objects when there is none."""
        if len(events) == 1:  # nearly always
            alone = encode_event(events[0])
            present = self._present
            if not self._patterns and not present().may_hold(alone):
                return events, [alone]
            cleaned = self.clean(alone)
            return events if cleaned is alone else (decode_event(cleaned),), [cleaned]
        given = encode_events(events)
        kept = list(map(self.clean, given))
        whole = zip(events, given, kept, strict=True)
        return tuple([event if new is old else decode_event(new) for event, old, new in whole]), kept

    def text(self, text: str) -> str:
        """Return a title, a tag or another text without secrets."""
        net = self._present()
        if not net.may_hold(text.encode("utf-8", "surrogatepass")):
            net = NOTHING
        return self._words(text, net, self._patterns)

    def blob(self, content: bytes) -> bytes:
        """Return the content of a blob: a text without secrets; anything that is no text stays as it is."""
        net = self._present()
        if not net.may_hold(content):
            if not self._patterns:
                return content
            net = NOTHING
        return self._blob(content, net)

    def _blob(self, content: bytes, net: Net) -> bytes:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return content
        cleaned = self._words(text, net, self._patterns)
        return content if cleaned == text else cleaned.encode()

    def _field(self, value: object, name: str, net: Net, patterns: tuple[re.Pattern[str], ...]) -> object:
        """Return the value of a field; the same object when nothing is taken out of it."""
        match value:
            case str():
                return value if name in fixed_fields() else self._words(value, net, patterns if name in PROSE else ())
            case list():
                items = [self._field(item, name, net, patterns) for item in value]
                return value if all(new is old for new, old in zip(items, value, strict=True)) else items
            case dict():
                hosted = value.get("kind") == "hosted"
                fields = {
                    key: self._field(item, key, net, () if key == "seal" or (hosted and key == "raw") else patterns)
                    for key, item in value.items()
                }
                if all(fields[key] is value[key] for key in value):
                    return value
                fields.pop("seal", None)
                if value.get("kind") == "tool_call" and fields.get("raw") is not value.get("raw"):
                    fields["redacted"] = True  # it must not run as if the model had written this
                return fields
        return value

    def _words(self, text: str, net: Net, patterns: tuple[re.Pattern[str], ...]) -> str:
        """Return a text without secrets. What was the text of a JSON object still is one."""
        cleaned = _without(text, net, patterns)
        if cleaned == text:
            return text
        value = _object(text)
        if value is None or _object(cleaned) is not None:
            return cleaned
        return msgspec.json.encode(_inside(value, net, patterns)).decode()


def _keep_net(secrets: Callable[[], Iterable[str]]) -> Callable[[], Net]:
    """Return a function that gives the net for the secrets of the moment."""
    kept = KeptNet()
    return lambda: kept.of(secrets())


@cache
def fixed_fields() -> frozenset[str]:
    """Return the fields of events that hold one of a few words, a time or a number: never a secret, useless when changed."""
    return frozenset(name for name, is_text in fields_of(inspect.type_info(Event)) if not is_text)


def fields_of(type_: inspect.Type, name: str = "") -> Iterator[tuple[str, bool]]:
    """Yield the names of all fields below a type that hold words, and whether it may be any words."""
    match type_:
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            for inner in types:
                yield from fields_of(inner, name)
        case inspect.VarTupleType(item_type=item):
            yield from fields_of(item, name)
        case inspect.StructType(tag_field=tag, fields=fields):
            if tag:
                yield tag, False
            for field in fields:
                yield from fields_of(field.type, field.encode_name)
        case inspect.StrType():
            yield name, True
        case inspect.LiteralType() | inspect.DecimalType() | inspect.DateTimeType():
            yield name, False


def _compile(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
        boundless = compiled.search("") is not None
    except (re.error, TypeError) as error:
        raise BadValue(f"A pattern of the funnel is no regular expression for text: {error}. Correct it.") from None
    if boundless:
        raise BadValue(
            f"The pattern {compiled.pattern!r} of the funnel matches an empty text. Let it match at least a character."
        )
    return compiled


def _without(text: str, net: Net, patterns: tuple[re.Pattern[str], ...]) -> str:
    text = net.without(text)
    for pattern in patterns:
        text = pattern.sub(REDACTED, text)
    return text


def _inside(value: object, net: Net, patterns: tuple[re.Pattern[str], ...]) -> object:
    """Return a decoded value without secrets: in keys, and in numbers too, which become texts."""
    match value:
        case str():
            return _without(value, net, patterns)
        case list():
            return [_inside(item, net, patterns) for item in value]
        case dict():
            return {_without(key, net, patterns): _inside(item, net, patterns) for key, item in value.items()}
        case int() | float() if not isinstance(value, bool) and (digits := str(value)) != _without(digits, net, patterns):
            return REDACTED
    return value


def _object(text: str) -> dict[str, object] | None:
    """Return what the text of a JSON object says; None for any other text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return None


UNREADABLE = "[unreadable]"
"""What stands in a list for a title or a tag that does not open."""

What = Literal["event", "note", "title", "tag", "blob", "fold"]


class Redaction:
    """The funnel and the cipher of a store. Encrypted content is bound to its kind, its owner, and its number there."""

    __slots__ = ("cipher", "funnel")

    def __init__(self, funnel: Funnel, cipher: Cipher | None = None) -> None:
        self.funnel = funnel
        self.cipher = cipher

    def seal(self, what: What, owner: str, content: bytes, *, number: int = 0) -> bytes:
        """Return content as it is stored: encrypted, if there is a cipher."""
        return content if self.cipher is None else self.cipher.seal(content, _about(what, owner, number).encode())

    def open(self, what: What, owner: str, stored: bytes, *, number: int = 0) -> bytes:
        """Return stored content decrypted. Raises StoreError if that fails."""
        return stored if self.cipher is None else open_sealed(self.cipher, stored, _about(what, owner, number))

    def seal_text(self, what: What, owner: str, text: str, *, number: int = 0) -> str | bytes:
        """Return text as it lies in the file: text without a cipher, bytes with one. No text stays no text."""
        return text if self.cipher is None or not text else self.seal(what, owner, text.encode(), number=number)

    def open_text(self, what: What, owner: str, stored: str | bytes, *, number: int = 0) -> str:
        """Return it as it was before it was sealed. StoreError when it does not open."""
        return stored if isinstance(stored, str) else self.open(what, owner, stored, number=number).decode()

    def label(self, what: What, owner: str, stored: str | bytes) -> str:
        """Return a title or a tag for a list. One that does not open must not hide the others."""
        try:
            return self.open_text(what, owner, stored)
        except (EvenerError, *MISFITS):
            return UNREADABLE


def _about(what: What, owner: str, number: int) -> str:
    return f"{what} {number} {owner}"
