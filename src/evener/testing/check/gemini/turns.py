"""How the contents of one request fit together: order, calls and their results, thought signatures. Sections 2, 3 and 7.

The model's consecutive contents count as one turn [recorded: two contents with a call each, answered by one]. Results are
not merged: splitting them over contents is refused, by many reports. With `cachedContent`, the server has the contents
before the first one, so no rule is applied to the first one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evener.testing.check.gemini.contents import DATA
from evener.testing.check.gemini.fields import CALL, CONTENT, PART, RESPONSE, listed, read
from evener.testing.check.models import GeminiRow
from evener.testing.check.shape import Violation, fields, shown, text

Fields = Mapping[str, object]


class ContentTurn(msgspec.Struct, frozen=True):
    """The parts of one content that these rules read. `real`: a user message that has more than results."""

    path: str
    model: bool
    calls: list[Fields]
    results: list[Fields]
    signed: bool
    real: bool


def turns_of(contents: object) -> list[ContentTurn]:
    """Return the parsed contents. A malformed one has no calls and no results; other rules report it."""
    return [_turn(f"contents[{index}]", read(value, CONTENT)) for index, value in enumerate(listed(contents))]


def _turn(path: str, content: Fields) -> ContentTurn:
    parts = [read(part, PART) for part in listed(content.get("parts"))]
    calls = [part for part in parts if isinstance(part.get("functionCall"), dict)]
    results = [part for part in parts if isinstance(part.get("functionResponse"), dict)]
    is_model = text(content.get("role")) == "model"
    return ContentTurn(
        path=path,
        model=is_model,
        calls=[read(part["functionCall"], CALL) for part in calls],
        results=[read(part["functionResponse"], RESPONSE) for part in results],
        signed=not calls or bool(calls[0].get("thoughtSignature")),
        real=not is_model and any(name in part for part in parts for name in DATA if name != "functionResponse"),
    )


def check_turns(turns: Sequence[ContentTurn], row: GeminiRow, *, cached: bool) -> Iterator[Violation]:
    """Report errors between contents."""
    if turns and turns[0].model and not cached:
        yield Violation(turns[0].path, "contents.first", "Please ensure that the first content is from the user.")
    if turns and turns[-1].model and not row.ends_with_model:
        yield Violation(turns[-1].path, "contents.last", "Requests ending with a model turn are not supported.")
    waiting: list[Fields] = []
    for index, turn in enumerate(turns):
        if turn.results or waiting:
            yield from _check_results(turn, waiting, row, free=cached and index == 0)
        waiting = [*(waiting if turn.model else ()), *turn.calls]
    if waiting:
        yield from _check_answered(turns[-1].path)
    if row.signed:
        yield from _check_signatures(turns)


def _check_results(turn: ContentTurn, waiting: Sequence[Fields], row: GeminiRow, *, free: bool) -> Iterator[Violation]:
    if turn.model and not turn.results:
        return
    if not turn.results:
        yield from _check_answered(turn.path)
    elif not waiting:
        if not free:
            message = "Please ensure that function response turn comes immediately after a function call turn."
            yield Violation(turn.path, "function_response.orphan", message)
    elif len(waiting) != len(turn.results):
        message = (
            "Please ensure that the number of function response parts is equal to the number of function call parts of "
            "the function call turn."
        )
        yield Violation(turn.path, "function_response.count", message)
    else:
        yield from _check_pairs(turn, waiting, row)
        yield from _check_confirmed(turn, waiting)


def _check_answered(path: str) -> Iterator[Violation]:
    message = "Please ensure that function call turn is followed by a function response turn."
    yield Violation(path, "function_call.unanswered", message)


def _check_pairs(turn: ContentTurn, waiting: Sequence[Fields], row: GeminiRow) -> Iterator[Violation]:
    """Report results that are not in the order of their calls, or have another name or id (sections 2 and 3)."""
    asked = [text(call.get("name")) for call in waiting]
    given = [text(result.get("name")) for result in turn.results]
    ids = [(text(call.get("id")), text(result.get("id"))) for call, result in zip(waiting, turn.results, strict=True)]
    shuffled = Counter(one for one, _other in ids) == Counter(other for _one, other in ids)
    if Counter(asked) != Counter(given):
        yield Violation(turn.path, "function_response.name", "A function response must have the name of its function call.")
    elif asked != given or (shuffled and any(one != other for one, other in ids)):
        yield Violation(turn.path, "function_response.order", "Function responses must be in the order of their calls.")
    elif any(one and other and one != other for one, other in ids):
        yield Violation(turn.path, "function_response.id", "A function response must have the id of its function call.")
    elif row.result_ids and any(one and not other for one, other in ids):
        yield Violation(turn.path, "function_response.id", "A function response must have an id on this model.")


def _check_confirmed(turn: ContentTurn, waiting: Sequence[Fields]) -> Iterator[Violation]:
    """Report a result that does not acknowledge a safety check, unless it is an error because the action was not done."""
    for call, result in zip(waiting, turn.results, strict=True):
        decision = fields(fields(call.get("args")).get("safety_decision")).get("decision")
        response = fields(result.get("response"))
        if decision == "require_confirmation" and not {"safety_acknowledgement", "error"} & response.keys():
            message = "The safety decision of a function call was not acknowledged in its response."
            yield Violation(turn.path, "function_response.unacknowledged", message)


def _check_signatures(turns: Sequence[ContentTurn]) -> Iterator[Violation]:
    """Report a first call of a model content, since the user's last message, without its signature (section 7)."""
    for turn in reversed(turns):
        if turn.real:
            return
        if turn.model and not turn.signed:
            name = shown(text(turn.calls[0].get("name")))
            message = f"Function call is missing a thought_signature in functionCall parts: {name}."
            yield Violation(turn.path, "thought_signature", message)
