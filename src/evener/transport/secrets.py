"""Keeps credentials out of what people see. Pure; knows only the secrets it is given, and never stores one."""

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable
from hashlib import sha256
from urllib.parse import quote, quote_plus

__all__ = ["REDACTED", "fingerprint", "scrub"]

REDACTED = "[secret]"
SHORTEST = 6
"""A shorter text is in so many places by chance that hiding it would tell more than it hides."""


def fingerprint(secret: str) -> str:
    """A short name for a secret that does not give it away: the same for the same secret, of no use to guess it by."""
    return sha256(b"evener key\0" + secret.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def scrub(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets: as they are, and as they look in an address, in JSON and in base64.

    Secrets of fewer than 6 characters are left alone.
    """
    forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
    if not forms:
        return text
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return re.sub("|".join(re.escape(form) for form in longest_first), REDACTED, text)


def _forms(secret: str) -> set[str]:
    content = secret.encode("utf-8", "surrogatepass")
    quoted = {quote(content, safe=""), quote(content), quote_plus(content)}
    lower = {re.sub(r"%[0-9A-F]{2}", lambda hit: hit[0].lower(), form) for form in quoted}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    slashed = {form.replace("/", "\\/") for form in escaped}
    return {secret} | quoted | lower | escaped | slashed | set(_encoded(content))


def _encoded(content: bytes) -> Iterable[str]:
    """Base64 of the secret wherever it stands in a longer text: at each of three offsets, without what its neighbours touch."""
    for offset in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            whole = encode(b"\0" * offset + content).decode().rstrip("=")
            start = -(-offset * 8 // 6)
            end = len(whole) if (offset + len(content)) % 3 == 0 else len(whole) - 1
            middle = whole[start:end]
            if len(middle) >= SHORTEST:
                yield middle
