"""Builds a violating request from a valid one: a case is a base body and a few edits. Bases are never changed."""

import copy
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
GONE = object()


@dataclass(frozen=True)
class Case:
    """One broken rule: `base` is accepted, `base` with `edits` is refused for `rule`.

    An edit's key is a dotted path (numbers are list places, one past the end appends); the value `GONE` removes the
    field. `options` are check_request's keywords. `raw` replaces the edited body where a case is about bytes.
    """

    rule: str
    base: Json
    edits: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)
    raw: bytes | str | None = None

    @property
    def body(self) -> Any:
        """The refused body."""
        return edited(self.base, self.edits) if self.raw is None else self.raw

    def __str__(self) -> str:
        return f"{self.rule}:{','.join(self.edits) or 'raw'}"


def edited(base: Json, edits: Json) -> Json:
    """A copy of the base with each edit made in turn."""
    body = copy.deepcopy(base)
    for path, value in edits.items():
        *parents, last = path.split(".")
        place: Any = body
        for name in parents:
            place = place[_key(place, name)]
        _set(place, _key(place, last), value)
    return body


def _key(place: Any, name: str) -> Any:
    return int(name) if isinstance(place, list) else name


def _set(place: Any, key: Any, value: Any) -> None:
    if value is GONE:
        del place[key]
    elif isinstance(place, list) and key == len(place):
        place.append(value)
    else:
        place[key] = value
