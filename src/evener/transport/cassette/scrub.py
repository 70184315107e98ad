"""Removes secrets from an exchange before it is stored or shown. Pure; keeps only headers that are known to be harmless.

Headers are kept by a list of names to keep, never by a list of names to drop. A secret is found as plain text, as JSON or a
URL encodes it, and in base64; also if it is split over two pieces of an answer, or over several events.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from urllib.parse import unquote_plus

import msgspec

from evener.transport.cassette.split_secrets import channels, remove_split_secrets
from evener.transport.exchange import Request
from evener.transport.secrets import REDACTED, known_net

SHORTEST_LEARNED = 8  # characters: a shorter value of a credential header is a dummy, and may be an everyday word

REQUEST_HEADERS = frozenset("accept anthropic-beta anthropic-version content-type openai-beta".split())
RESPONSE_HEADERS = frozenset(
    "content-type openai-processing-ms openai-version request-id retry-after retry-after-ms x-amzn-errortype x-amzn-requestid "
    "x-generation-id x-request-id x-should-retry".split()
)
RATE_LIMITS = re.compile(r"(?:anthropic|x)-ratelimit-[a-z-]+")
# Names of credentials. The pattern is broad on purpose: the loss of a harmless part of a query costs little.
CREDENTIAL = re.compile(r"auth|cookie|credential|key|password|secret|session|sig|token", re.IGNORECASE)
# The fields of a request's body that contain a login for a tool server.
BODY_CREDENTIAL = re.compile(
    rb'"(?:(?:proxy-)?authorization(?:_token)?|(?:x-)?api[-_]?key|access_token|client_secret)"\s*:\s*("(?:[^"\\]|\\.)*+")',
    re.IGNORECASE,
)
URL = re.compile(r"(?P<scheme>[^:/?#]+:)?(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?")


def keep_request_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of a request that may be stored: names in lower case and sorted, repeated ones joined."""
    kept: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        if lower in REQUEST_HEADERS:
            kept[lower] = f"{kept[lower]}, {value}" if lower in kept else value
    return dict(sorted(kept.items()))


def keep_response_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a response that may be stored, sorted.

    Size and compression are left out: the bytes are stored as read.
    """
    lower = sorted((name.lower(), value) for name, value in headers.items())
    return {name: value for name, value in lower if name in RESPONSE_HEADERS or RATE_LIMITS.fullmatch(name)}


def credentials(request: Request) -> set[str]:
    """Return the secrets of a request: in headers, in the query, in the URL's login, and for tool servers in the body."""
    values = [value for name, value in request.headers if CREDENTIAL.search(name) and name.lower() not in REQUEST_HEADERS]
    values += (_text(literal) for literal in BODY_CREDENTIAL.findall(request.body))
    found = {secret for value in values for secret in (value.strip(), value.rpartition(" ")[2])}
    authority, _, query = split_url(request.url)
    login = authority.rpartition("@")[0]
    found |= {login, login.partition(":")[2]}
    found |= {unquote_plus(value) for name, value in query_parts(query) if CREDENTIAL.search(name)}
    return {secret for secret in found if len(secret) >= SHORTEST_LEARNED}


def find_secrets(*contents: bytes) -> set[str]:
    """Return the secrets of this process that are in one of these, whole or split over several events."""
    net = known_net()
    spoken = (content for whole in contents for content in (whole, *channels(whole)))
    return {secret for content in spoken if net.may_hold(content) for secret in net.found_in(content.decode(errors="replace"))}


def _text(literal: bytes) -> str:
    """Return the value of a JSON string; the unchanged text if it is not one."""
    try:
        return msgspec.json.decode(literal, type=str)
    except msgspec.DecodeError:
        return literal[1:-1].decode(errors="replace")


def split_url(url: str) -> tuple[str, str, str]:
    """Return authority, path and query of any text; never fails."""
    found = URL.match(url)
    assert found is not None, "every part of the pattern is optional"
    return found["authority"] or "", found["path"], found["query"] or ""


def query_parts(query: str) -> list[tuple[str, str]]:
    """Return the names, decoded, and the values as they are."""
    parts = [part.partition("=") for part in query.split("&") if part]
    return [(unquote_plus(name), value) for name, _, value in parts]


def scrub_url(url: str, pattern: re.Pattern[bytes] | None) -> str:
    """Return the URL without login and fragment, and without the values of credentials in the query."""
    found = URL.match(url)
    assert found is not None, "every part of the pattern is optional"
    authority = (found["authority"] or "").rpartition("@")[2]
    parts = []
    for part in (found["query"] or "").split("&"):
        name, equals, _ = part.partition("=")
        parts.append(f"{name}={REDACTED}" if equals and CREDENTIAL.search(unquote_plus(name)) else part)
    query = f"?{'&'.join(parts)}" if found["query"] else ""
    whole = f"{found['scheme'] or ''}{'//' if found['authority'] is not None else ''}{authority}{found['path']}{query}"
    return scrub_text(whole, pattern)


def secret_pattern(secrets: Iterable[str]) -> re.Pattern[bytes] | None:
    """Return a pattern that finds any of the secrets, the longest first; None when there are none."""
    wanted = sorted({secret for secret in secrets if secret}, key=lambda secret: (-len(secret), secret))
    if not wanted:
        return None
    plain = [_lead(secret) + b"".join(map(_spellings, secret)) for secret in wanted]
    return re.compile(b"|".join([*plain, *(found for secret in wanted for found in _within_base64(secret))]))


def _lead(secret: str) -> bytes:
    """Return the lookbehind that keeps a search through a long run of backslashes at O(n) instead of O(n^2)."""
    return b"" if secret[0].isascii() and secret[0].isalnum() else rb"(?<!\\)"


def scrub_text(text: str, pattern: re.Pattern[bytes] | None) -> str:
    """Return the text with each secret replaced."""
    content = text.encode("utf-8", "surrogatepass")
    return b"".join(scrub_pieces((content,), pattern)).decode("utf-8", "surrogatepass")


def scrub_pieces(pieces: Sequence[bytes], pattern: re.Pattern[bytes] | None) -> tuple[bytes, ...]:
    """Return the pieces without the secrets of the whole text. A cut inside a secret moves to its end; other cuts stay."""
    whole = b"".join(pieces)
    if pattern is None:
        return tuple(pieces)
    spans = [found.span() for found in pattern.finditer(whole)]
    clean = pattern.sub(REDACTED.encode(), whole) if spans else whole
    respelled = remove_split_secrets(clean, pattern) if len(pieces) > 1 or b"\n" in clean or clean[:1] == b"[" else clean
    if respelled is not clean:
        return (respelled,)  # the original cuts do not apply to it
    if not spans:
        return tuple(pieces)
    cuts, length = [0], 0
    for piece in pieces:
        length += len(piece)
        cuts.append(length)
    return tuple(clean[start:end] for start, end in pairwise(_move_cuts(cuts, spans)) if end > start)


def _move_cuts(cuts: Iterable[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the position of each cut after the spans were replaced."""
    moved, shift, number = [], 0, 0
    for cut in cuts:
        while number < len(spans) and spans[number][0] < cut:
            start, end = spans[number]
            shift += len(REDACTED) - (end - start)
            number += 1
        end = spans[number - 1][1] if number else 0
        moved.append(max(cut, end) + shift)
    return moved


def _spellings(character: str) -> bytes:
    """Return a pattern for one character of a secret: plain, backslashed, as JSON's \\u escape, percent-encoded."""
    plain = character.encode("utf-8", "surrogatepass")
    if character.isascii() and character.isalnum():
        return plain
    units = character.encode("utf-16-be", "surrogatepass")
    escapes = b"".join(rb"\\+u(?i:%s)" % units[start : start + 2].hex().encode() for start in range(0, len(units), 2))
    percents = b"".join(rb"%%(?i:%02x)" % byte for byte in plain)
    plus = rb"|\+" if character == " " else b""
    return rb"(?:\\*%s|%s|%s%s)" % (re.escape(plain), escapes, percents, plus)


def _within_base64(secret: str) -> list[bytes]:
    """Return patterns for the secret inside a longer base64 text: for each alignment, the letters that only the secret
    determines.
    """
    content = secret.encode("utf-8", "surrogatepass")
    found = []
    for shift, first in ((0, 0), (1, 2), (2, 3)):
        letters = b64encode(bytes(shift) + content)[first : (shift + len(content)) * 8 // 6]
        if len(letters) >= SHORTEST_LEARNED:
            found.append(letters.replace(b"+", b"[+-]").replace(b"/", b"[/_]"))
    return found
