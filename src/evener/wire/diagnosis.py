"""Why a provider's prompt cache was missed: how a request asks for it, what the answer says, and whether we had foreseen it.

Pure. A provider compares a request with an earlier one of the same conversation, which the request names. What it found is held
against what `moved` had predicted: where they disagree, one of them is wrong, and the user should know.
"""

from collections.abc import Iterable

import msgspec

from evener.wire.prefix import dumps
from evener.wire.quirks import Quirks

DIAGNOSIS = "cache_diagnosis"
"""The name of the notice that holds it as it came."""
OPTIONS = b'"prompt_cache_options":{'
SECTIONS = {
    "model_changed": "model",
    "system_changed": "system",
    "tools_changed": "tools",
    "messages_changed": "messages",
    "input_changed": "input",
    "context_compacted": "messages",
}
"""Our word for what changed, by the provider's; any other stands for itself."""
SAME = {"input": ("messages", "system")}
"""What a word stands for, where it is more than we call by it."""
NOT_TOLD = ("unavailable", "previous_message_not_found", "comparison_response_not_found")


class CacheDiagnosis(msgspec.Struct, frozen=True):
    """What a provider says of a request: what changed, in our words, and how many tokens were missed. Both empty: a hit."""

    changed: str = ""
    tokens: int = 0


class _Miss(msgspec.Struct):
    type: str = ""
    reason: str = ""
    cache_missed_input_tokens: int = 0
    cache_missed_tokens: int = 0


class _Diagnosis(_Miss):
    cache_miss_reason: _Miss | None = None


def ask_diagnosis(body: bytes, quirks: Quirks, previous: str) -> bytes:
    """Return the body of a request that also asks how it compares with the answer of that id; empty: there is none yet."""
    if quirks.diagnosis == "message":
        return body[:-1] + b',"diagnostics":' + dumps({"previous_message_id": previous or None}) + b"}"
    if quirks.diagnosis == "response" and previous:
        asked = b'"comparison_response_id":' + dumps(previous)
        if OPTIONS in body:  # the head of the body has them: a quote in a text would be escaped
            return body.replace(OPTIONS, OPTIONS + asked + b",", 1)
        return body[:-1] + b"," + OPTIONS + asked + b"}}"
    return body


def read_diagnosis(notices: Iterable[tuple[str, str]]) -> CacheDiagnosis | None:
    """Return what the notices of an answer say; None when the provider says nothing, or does not know yet."""
    raw = next((raw for name, raw in notices if name == DIAGNOSIS), "")
    try:
        read = msgspec.json.decode(raw, type=_Diagnosis) if raw else None
    except msgspec.MsgspecError:
        return None
    if read is None:
        return None
    miss = read.cache_miss_reason or read
    why = miss.reason or miss.type
    if why in ("", *NOT_TOLD):
        return None
    if why == "cache_hit":
        return CacheDiagnosis()
    missed = miss.cache_missed_input_tokens or miss.cache_missed_tokens
    return CacheDiagnosis(SECTIONS.get(why, why.removesuffix("_changed")), missed)


def compare_diagnosis(predicted: Iterable[str], found: CacheDiagnosis) -> str:
    """Return how a diagnosis differs from what `moved` predicted, in words; empty when they agree.

    A provider names the first of several changes, so only that one has to be among ours.
    """
    ours = [one.partition(" ")[0] for one in predicted]
    seen = SAME.get(found.changed, (found.changed,))
    if any(one in ours for one in seen) or (not found.changed and not ours):
        return ""
    missed = f" ({found.tokens:,} tokens)" if found.tokens else ""
    if not ours:
        return f"it says that its prompt cache was missed{missed} because of the {found.changed}, and nothing has changed here"
    expected = ", ".join(ours)
    if not found.changed:
        return f"it says that its prompt cache was hit, although {expected} changed"
    return f"it says that its prompt cache was missed{missed} because of the {found.changed}; expected: {expected}"
