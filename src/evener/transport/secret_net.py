"""Looks for many secrets at once, in all forms that they travel in. Pure; shows none of them."""

import json
import sys
from collections.abc import Iterable, Iterator
from threading import Lock

from evener.transport.secrets import REDACTED, SHORTEST, forms_of, known_secrets

__all__ = ["KeptNet", "Net", "known_net"]

LEVELS = 3
WORD, QUAD = 8, 4
SPARSE = 4
"""Forms of at least 39 bytes cover one of every fourth word: the keys of most providers are that long."""
MANY = 64


class Net:
    """The forms of some secrets, ready to be looked for. What a look costs does not depend on how many there are.

    A hit is ruled out first, and cheaply: the content is seen as aligned words, and any occurrence of a form covers one of
    them, which must be among those that the form can have there. Only what is left is searched place by place.
    """

    __slots__ = ("_forms", "_lengths", "_needles", "_quads", "_sampled", "_words")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: dict[str, str] = {}  # each form, and whose it is
        self._lengths: dict[str, tuple[int, ...]] = {}  # of the forms that begin with these characters, the longest first
        self._sampled: set[int] = set()  # words of 8 bytes, of forms that cover one of every fourth word
        self._words: set[int] = set()  # words of 8 bytes, of forms that cover one of all words
        self._quads: set[int] = set()  # words of 4 bytes, of shorter forms
        self._needles: list[bytes] = []  # what is too short for that, or so few that they are looked for one by one
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Look for these, too."""
        whose = {form: secret for secret in secrets if len(secret) >= SHORTEST for form in _nested(secret)}
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
        """False when no form is in it for certain."""
        for needle in self._needles:
            if content.find(needle) >= 0:  # `in` tries a needle of bytes as a number first, which costs more than the search
                return True
        if self._sampled or self._words:
            words = memoryview(content[: len(content) & -WORD]).cast("Q")
            if not self._sampled.isdisjoint(words[::SPARSE]) or (self._words and not self._words.isdisjoint(words)):
                return True
        return bool(self._quads) and not self._quads.isdisjoint(memoryview(content[: len(content) & -QUAD]).cast("I"))

    def without(self, text: str) -> str:
        """The text with every form replaced."""
        pieces, done = [], 0
        for start, end in self._spans(text):
            pieces += [text[done:start], REDACTED]
            done = end
        return "".join((*pieces, text[done:])) if pieces else text

    def found_in(self, text: str) -> set[str]:
        """The secrets of which a form is in the text."""
        return {self._forms[text[start:end]] for start, end in self._spans(text)}

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where forms lie, the longest at each place."""
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
    """A net for secrets that become more: only what is new is added to it. May be used by several threads."""

    __slots__ = ("_lock", "_net", "seen")

    def __init__(self) -> None:
        self.seen: tuple[str, ...] = ()
        self._net = Net()
        self._lock = Lock()

    def of(self, secrets: Iterable[str]) -> Net:
        """The net for these secrets."""
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


_known = KeptNet()


def known_net() -> Net:
    """The net for every secret that this process has used."""
    return _known.of(known_secrets())


def _nested(secret: str) -> set[str]:
    """The forms of a secret, also within JSON texts that are strings of JSON texts."""
    level = found = forms_of(secret)
    for _ in range(LEVELS):
        level = {json.dumps(form, ensure_ascii=False)[1:-1] for form in level}
        found = found | level
    return found


def _starts(form: bytes, size: int, count: int) -> Iterator[int]:
    """The words of a form that may come to lie on a boundary first: those at its first `count` places."""
    return (int.from_bytes(form[start : start + size], sys.byteorder) for start in range(min(count, len(form) - size + 1)))
