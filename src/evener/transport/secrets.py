"""Keeps credentials out of messages and stores: wrappers that hide them, and a search for them. Writes and shows none.

`scrub` knows only the secrets it is given. The secrets that this process has used are noted beside it, for the store.
"""

import re
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from threading import Lock
from typing import Generic, TypeVar
from urllib.parse import quote, quote_plus

LEVELS = 3
WORD, QUAD = 8, 4
SPARSE = 4
"""A form of at least 39 bytes covers a whole aligned word at a multiple of four words. Most providers' keys are that long."""
MANY = 64


class Net:
    """The forms of some secrets, ready to be searched for. The cost of a search does not depend on how many there are.

    Most content has no hit, and a cheap test shows it: the content is read as aligned words. A form that occurs in it covers
    at least one whole word, and the set has every word that the form can cover. Only content with such a word is searched.
    """

    __slots__ = ("_forms", "_lengths", "_needles", "_quads", "_sampled", "_words")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: dict[str, str] = {}  # each form, and its secret
        self._lengths: dict[str, tuple[int, ...]] = {}  # by first characters: the lengths of the forms, longest first
        self._sampled: set[int] = set()  # words of 8 bytes, of forms that cover one of every fourth word
        self._words: set[int] = set()  # words of 8 bytes, of forms that cover one of all words
        self._quads: set[int] = set()  # words of 4 bytes, of shorter forms
        self._needles: list[bytes] = []  # forms that are too short for that, or so few that they are searched one by one
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Add secrets to search for."""
        whose = {form: secret for secret in secrets if len(secret) >= SHORTEST for form in _find_nested(secret)}
        for form in whose.keys() - self._forms.keys():
            head, length = form[:SHORTEST], len(form)
            lengths = self._lengths.get(head, ())
            if length not in lengths:
                self._lengths[head] = tuple(sorted((*lengths, length), reverse=True))
            self._cut(form.encode("utf-8", "surrogatepass"))
        self._forms |= whose
        if len(self._needles) > MANY:
            for needle in self._needles:
                self._quads.update(_starts(needle, QUAD, QUAD))
            self._needles = [needle for needle in self._needles if len(needle) < 2 * QUAD - 1]

    def _cut(self, form: bytes) -> None:
        if len(form) >= SPARSE * WORD + WORD - 1:
            self._sampled.update(_starts(form, WORD, SPARSE * WORD))
        elif len(form) >= 2 * WORD - 1:
            self._words.update(_starts(form, WORD, WORD))
        else:
            self._needles.append(form)

    def may_hold(self, content: bytes) -> bool:
        """True if the content may contain a form of a secret. False is certain."""
        for needle in self._needles:
            if content.find(needle) >= 0:  # `in` tries a needle of bytes as a number first, which costs more than the search
                return True
        if self._sampled or self._words:
            words = memoryview(content[: len(content) & -WORD]).cast("Q")
            if not self._sampled.isdisjoint(words[::SPARSE]) or (self._words and not self._words.isdisjoint(words)):
                return True
        return bool(self._quads) and not self._quads.isdisjoint(memoryview(content[: len(content) & -QUAD]).cast("I"))

    def without(self, text: str) -> str:
        """Return the text with every form of a secret replaced."""
        if not self._forms:
            return text
        pieces, done = [], 0
        for start, end in self._spans(text):
            pieces += [text[done:start], REDACTED]
            done = end
        return "".join((*pieces, text[done:])) if pieces else text

    def found_in(self, text: str) -> set[str]:
        """Return the secrets that occur in the text in some form."""
        return {self._forms[text[start:end]] for start, end in self._spans(text)}

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of forms, the longest at each place."""
        place, last, lengths, forms = 0, len(text) - SHORTEST, self._lengths, self._forms
        while place <= last:
            step = 1
            for length in lengths.get(text[place : place + SHORTEST], ()):
                if text[place : place + length] in forms:
                    yield place, place + length
                    step = length
                    break
            place += step


class KeptNet:
    """A net for a growing list of secrets: only new ones are added to it. Thread-safe."""

    __slots__ = ("_lock", "_net", "seen")

    def __init__(self) -> None:
        self.seen: tuple[str, ...] = ()
        self._net = Net()
        self._lock = Lock()

    def of(self, secrets: Iterable[str]) -> Net:
        """Return the net for these secrets."""
        if secrets is self.seen:
            return self._net
        given = secrets if isinstance(secrets, tuple) else tuple(secrets)
        with self._lock:
            known = len(self.seen)
            if given[:known] == self.seen:
                self._net.add(given[known:])
            else:
                self._net = Net(given)
            self.seen = given
            return self._net


_kept_net = KeptNet()


def known_net() -> Net:
    """Return the net for all secrets that this process has used."""
    return _kept_net._net if _kept_net.seen is _known else _kept_net.of(_known)


def _find_nested(secret: str) -> set[str]:
    """Return the forms of a secret, also within JSON texts that are strings of JSON texts."""
    import json

    level = found = forms_of(secret)
    for _ in range(LEVELS):
        level = {json.dumps(form, ensure_ascii=False)[1:-1] for form in level}
        found = found | level
    return found


def _starts(form: bytes, size: int, count: int) -> Iterator[int]:
    """Return the words of a form that may begin at a word boundary of the content: those at its first `count` offsets."""
    return (int.from_bytes(form[start : start + size], sys.byteorder) for start in range(min(count, len(form) - size + 1)))


REDACTED = "[secret]"
SHORTEST = 6
"""A shorter text occurs often by chance: replacing it would damage other text and show what the secret is."""

BEGINNING = 16
"""Characters: a beginning of this length is longer than the prefix that the keys of a provider share."""

STAND_IN = re.compile(r"[a-z]+(?:[-_][a-z]+)*")
LONGEST_STAND_IN = 15
CREDENTIALS = re.compile(r"(?i).*(?:authorization|key|token|secret)")
SCHEMES = frozenset({"bearer", "basic", "token", "key"})

T = TypeVar("T", bound=str | bytes)

_lock = Lock()
_known: tuple[str, ...] = ()
_noted: set[str] = set()


class Secret(Generic[T]):
    """A text or bytes that are shown in no repr and no locals of a traceback, and that cannot be pickled."""

    __slots__ = ("_held",)

    def __init__(self, held: T) -> None:
        self._held: T = held

    def reveal(self) -> T:
        """Return the secret itself. Do not keep it in a variable that lives as long as a request."""
        return self._held

    def __bool__(self) -> bool:
        return bool(self._held)

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> str:
        raise TypeError("A secret cannot be pickled or copied. Look it up where it is needed.")


class Environment(Mapping[str, str]):
    """Environment variables whose values no repr shows: a traceback with locals would print every key of the user."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values: Mapping[str, str] = values

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<Environment of {len(self._values)} variables>"


def fingerprint(secret: str) -> str:
    """Return a short name for a secret that does not reveal it: equal secrets have equal fingerprints."""
    from hashlib import sha256

    return sha256(b"evener key\0" + secret.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets: in plain form, and as encoded in a URL, in JSON and in base64, in either case.

    A quotation may end in the middle of a secret: 16 or more characters of its beginning are hidden, too. Secrets of fewer than
    6 characters are not hidden.
    """
    forms = {form for secret in secrets if len(secret) >= SHORTEST for form in forms_of(secret)}
    if not forms:
        return text
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    text = re.sub("|".join(re.escape(form) for form in longest_first), REDACTED, text, flags=re.IGNORECASE)
    for form in longest_first:
        if len(form) > BEGINNING:
            text = _cut_beginnings(text, form.lower())
    return text


def note_secret(*secrets: str) -> None:
    """Remember these secrets until the process ends, so that they are kept out of every store.

    Ignored are texts of fewer than 6 characters, and plain words of up to 15 letters such as `not-needed`. Such a word is a
    placeholder for a key that is not needed, and hiding it would change names and sentences.
    """
    global _known
    if _noted.issuperset(secrets):
        return
    with _lock:
        wanted = tuple(dict.fromkeys(secret for secret in secrets if secret not in _noted and is_secret(secret)))
        _known += wanted
        _noted.update(wanted)


def known_secrets() -> tuple[str, ...]:
    """Return the noted secrets, in order. It is the same object until another secret is added at the end."""
    return _known


def credential(name: str, value: str) -> str:
    """Return the part of a header that is a lasting secret, such as a key or token.

    Empty for anything else, such as a signature.
    """
    if not CREDENTIALS.fullmatch(name):
        return ""
    scheme, _, rest = value.rpartition(" ")
    return rest if not scheme or scheme.lower() in SCHEMES else ""


def is_secret(text: str) -> bool:
    """True if `note_secret` accepts it: it is neither too short nor a placeholder for a key."""
    return len(text) >= SHORTEST and not (len(text) <= LONGEST_STAND_IN and STAND_IN.fullmatch(text))


def forms_of(secret: str) -> set[str]:
    """Return every form of a secret to search for: plain, and as encoded in a URL, in JSON and in base64."""
    import json

    content = secret.encode("utf-8", "surrogatepass")
    quoted = {quote(content, safe=""), quote(content), quote_plus(content)}
    lower = {re.sub(r"%[0-9A-F]{2}", lambda hit: hit[0].lower(), form) for form in quoted}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    slashed = {form.replace("/", "\\/") for form in escaped}
    return {secret} | quoted | lower | escaped | slashed | set(_encode(content))


def _cut_beginnings(text: str, form: str) -> str:
    """Return the text without beginnings of this secret that are long enough."""
    pieces, at = [], 0
    for found in re.finditer(re.escape(form[:BEGINNING]), text, re.IGNORECASE):
        start = found.start()
        if start >= at:
            pieces += [text[at:start], REDACTED]
            pairs = zip(text[start : start + len(form)].lower(), form, strict=False)
            at = start + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return "".join(pieces) + text[at:]


def _encode(content: bytes) -> Iterable[str]:
    """Return base64 of the secret within a longer text: at each of three offsets, without letters shared with neighbours."""
    for offset in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            whole = encode(b"\0" * offset + content).decode().rstrip("=")
            start = -(-offset * 8 // 6)
            end = len(whole) if (offset + len(content)) % 3 == 0 else len(whole) - 1
            middle = whole[start:end]
            if len(middle) >= SHORTEST:
                yield middle
