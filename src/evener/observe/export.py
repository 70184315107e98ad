"""The part of the spans that leaves a process: redacted attributes, as lines of JSON. Pure except for the secrets that it
removes.
"""

import re
import string
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from operator import attrgetter

import msgspec

from evener.observe.conventions import Attribute
from evener.observe.lines import TraceSpan, texts_in
from evener.store.redaction import Funnel
from evener.transport.secrets import known_net

CUT = 262_144
"""Characters of one attribute that are exported; texts in it were cut before."""


EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=%[0-9A-Fa-f]{2})|(?<=[0-9;\[]m))"
"""Where a key can begin. A span holds JSON, in which a control character is written with letters; a URL has letters for others,
and the codes of a terminal's colours end with one."""
NAMED = r"(?:api|access|account|private|signing)[_-]?key|secret|passw(?:or)?d|access[_-]?token|auth[_-]?token"
QUOTED = tuple(
    f"{name}{end}"
    for name in "api_key api-key apikey access_key private_key secret password passwd access_token auth_token".split()
    for mark in ('"', '\\"', '\\\\\\"')
    for end in (f"{mark}:{mark}", f"{mark}: {mark}")
)
"""What stands before a secret in JSON, also in JSON within a text of JSON, twice."""
KEY_SHAPES = (
    r"(?=[sprx][ka])"
    + EDGE
    + r"[sprx](?:k|ai)[-_](?:[A-Za-z0-9]{1,64}[-_]){0,8}[A-Za-z0-9]{12,}[A-Za-z0-9_-]*",  # OpenAI, Anthropic, Stripe, xAI
    r"(?=[a-z])" + EDGE + r"(?:gsk|hf|r8|npm|pypi|glpat|tgp|nvapi|pplx|csk|fw|whsec|dop_v1|lin_api)[-_][A-Za-z0-9_-]{16,}",
    r"(?=g)" + EDGE + r"(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}",
    r"(?=x)" + EDGE + r"xox[a-z]-[A-Za-z0-9-]{10,}",
    r"(?=A)" + EDGE + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
    r"(?=A)" + EDGE + r"AIza[A-Za-z0-9_-]{30,}",
    r"(?=y)" + EDGE + r"ya29\.[A-Za-z0-9_-]{20,}",
    r"(?=e)" + EDGE + r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{8,}\.?[A-Za-z0-9_-]*",  # JSON web tokens
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"]*?(?:-----END [A-Z ]*PRIVATE KEY-----|(?=\")|\Z)",
    r"(?i)(?:bearer|basic)\s+[A-Za-z0-9._~+/-]{16,}=*",
    r"://[^\s/@:\"]+:[^\s/@\"]{3,}@",  # a password in an address
    rf"(?i)(?:{NAMED})[A-Za-z0-9_-]{{0,40}}[ \t]{{0,8}}[:=][ \t]{{0,8}}[^\s\"\\,;]{{8,}}",
    rf"(?i)(?<=\")(?=[^\s\"\\]{{8}})(?:{'|'.join(f'(?<={re.escape(name)})' for name in QUOTED)})[^\s\"\\]{{8,}}",
)
"""What looks like a key of any provider. A trace is read by others than its thread, so here a false alarm costs little.

Repetitions are bounded where a text could repeat what stands before them: looking for these holds up the whole process."""
KEY_WORDS = "ya29 eyJ -----BEGIN ://".split()
CASELESS_KEY_WORDS = "bearer basic key secret passw token".split()
AMAZON_AND_GOOGLE = "AKIA ASIA ABIA ACCA AIza".split()
"""All that looks like a key holds one of these words, the second in any case, or `xox`, or a `-` or `_` after one of the
prefixes. They are looked for first, as all shapes take long."""
ID_CHARACTERS = f"{string.ascii_letters}{string.digits}-_\0".encode()
"""What most ids consist of, and what stands between them. A shape with one of the first two kinds of words has others,
too, so these words are not looked for in ids of these characters."""
KEY_PREFIXES = tuple(
    "sk pk rk xk sai pai rai xai hf r8 npm pypi glpat tgp nvapi pplx fw whsec ghp gho ghu ghs ghr lin dop github".split()
)
PREFIX_END = re.compile(f"_(?<=(?:{'|'.join(sorted({prefix[-2:] for prefix in KEY_PREFIXES}))})_)")

KEPT = 4_096
"""Characters of a text whose search for words of keys is remembered."""

CONTENT = attrgetter("content")


@cache
def trace_funnel() -> Funnel:
    """Return what takes secrets out of spans: every one that this process has used, and all that look like one."""
    return Funnel(patterns=KEY_SHAPES)


def redact_spans(spans: Iterable[TraceSpan], funnel: Funnel, *, content: bool) -> Iterator[TraceSpan]:
    """Yield spans without secrets: names and attributes too, as a tool or an error may be called anything."""
    spans = list(spans)
    if not content and funnel is trace_funnel() and not may_hold_secrets(list_texts(spans)):
        told = any(map(CONTENT, spans))
        yield from [msgspec.structs.replace(span, content={}) for span in spans] if told else spans
        return
    clean = _RedactedTexts(funnel)
    for span in spans:
        yield msgspec.structs.replace(
            span,
            name=clean[span.name],
            error=funnel.text(span.error),
            attributes={name: _redact(value, clean) for name, value in span.attributes.items()},
            content={name: funnel.text(value)[:CUT] for name, value in span.content.items()} if content else {},
        )


def list_texts(spans: Iterable[TraceSpan]) -> list[str]:
    """Return all texts of the spans but what was said, each once."""
    found: set[Attribute] = set()
    for span in spans:
        found.update(span.attributes.values(), (span.name, span.error))
    return texts_in(found)


def may_hold_secrets(texts: Sequence[str], ids: Sequence[str] = ()) -> bool:
    """True if one of the texts or of the ids may contain a secret or is too long. False is certain.

    Letters beyond ASCII always return True, because some of them equal others if case is ignored.
    """
    text, joined = "\n".join(texts), "\0".join(ids)
    whole = f"{text}\n{joined}"
    if not whole.isascii() or (len(whole) > CUT and max(map(len, (*texts, *ids))) > CUT):
        return True
    return known_net().may_hold(whole.encode()) or may_look_like_key(text, joined)


def may_look_like_key(text: str, ids: str = "") -> bool:
    """True if one of the shapes may be in this text of ASCII letters, or in these ids. False is certain."""
    if ids.encode().translate(None, ID_CHARACTERS):
        return _has_key_word(f"{text}\n{ids}")
    return (_has_key_word if len(text) > KEPT else _know_key_word)(text) or _has_key_prefix(ids)


def _has_key_word(text: str) -> bool:
    """True if the text holds what every key has."""
    for word in KEY_WORDS:
        if word in text:
            return True
    lower = text.lower()
    for word in CASELESS_KEY_WORDS:
        if word in lower:
            return True
    return _has_key_prefix(text)


_know_key_word = lru_cache(64)(_has_key_word)
"""The same for a text that is searched again and again: most runs of a process have the same names, tools and models."""


def _has_key_prefix(text: str) -> bool:
    """True if the text holds what every key has that consists of letters, digits, `-` and `_` alone."""
    if ("x" in text and "xox" in text) or ("A" in text and any([word in text for word in AMAZON_AND_GOOGLE])):
        return True
    marked = text.replace("-", "_")  # searching for each prefix would take longer
    return PREFIX_END.search(marked) is not None and any([part.endswith(KEY_PREFIXES) for part in marked.split("_")])


class _RedactedTexts(dict[str, str]):
    """A cache of texts without secrets. The spans of a run repeat the same texts, and searching for all forms of keys is
    expensive.
    """

    def __init__(self, funnel: Funnel) -> None:
        super().__init__()
        self._funnel = funnel
        self._shaped = funnel is trace_funnel()

    def __missing__(self, text: str) -> str:
        found = self[text] = text if self._shaped and not may_hold_secrets((text,)) else self._funnel.text(text)
        return found


def _redact(value: Attribute, clean: _RedactedTexts) -> Attribute:
    match value:
        case str():
            return clean[value][:CUT]
        case tuple():
            return tuple([clean[one][:CUT] for one in value])
        case _:
            return value


def attributes_of(span: TraceSpan) -> dict[str, Attribute]:
    """Return all attributes of a span, those with content included."""
    return {**span.attributes, **span.content}
