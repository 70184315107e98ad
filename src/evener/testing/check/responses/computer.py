"""Computer calls of the Responses wire: the item with its actions, and the screenshot that answers it.

Written from the vendor's SDK. A check that the API asked for must be acknowledged in the answer.
"""

from collections.abc import Iterator, Mapping, Sequence

from evener.testing.check.shape import (
    INT,
    LIST,
    OBJECT,
    STR,
    ObjectShape,
    check_shape,
    fields,
    items,
    join,
    one_of,
    shown,
    text,
)
from evener.testing.check.violation import Violation

_STATUS = one_of("in_progress", "completed", "incomplete")
CALL = ObjectShape(
    {"type": STR, "id": STR, "call_id": STR, "pending_safety_checks": LIST, "status": _STATUS},
    {"action": OBJECT, "actions": LIST},
)
OUTPUT = ObjectShape(
    {"type": STR, "call_id": STR, "output": OBJECT}, {"id": STR, "acknowledged_safety_checks": LIST, "status": _STATUS}
)
TOOL = ObjectShape({"type": STR})
PREVIEW = ObjectShape(
    {
        "type": STR,
        "display_width": INT,
        "display_height": INT,
        "environment": one_of("windows", "mac", "linux", "ubuntu", "browser"),
    }
)
_PLACE = {"type": STR, "x": INT, "y": INT}
_HELD = {"keys": LIST}
_ACTIONS: Mapping[str, ObjectShape] = {
    "click": ObjectShape({**_PLACE, "button": one_of("left", "right", "wheel", "back", "forward")}, _HELD),
    "double_click": ObjectShape(_PLACE, _HELD),
    "drag": ObjectShape({"type": STR, "path": LIST}, _HELD),
    "keypress": ObjectShape({"type": STR, "keys": LIST}),
    "move": ObjectShape(_PLACE, _HELD),
    "screenshot": ObjectShape({"type": STR}),
    "scroll": ObjectShape({**_PLACE, "scroll_x": INT, "scroll_y": INT}, _HELD),
    "type": ObjectShape({"type": STR, "text": STR}),
    "wait": ObjectShape({"type": STR}),
}
_SCREENSHOT = ObjectShape({"type": one_of("computer_screenshot")}, {"image_url": STR, "file_id": STR})
_CHECK = ObjectShape({"id": STR}, {"code": STR, "message": STR})

Item = Mapping[str, object]


def check_computers(listed: Sequence[Item]) -> Iterator[Violation]:
    """Report what is wrong inside of computer calls and their answers."""
    pending: dict[str, list[str]] = {}
    for index, item in enumerate(listed):
        path = f"input[{index}]"
        if item.get("type") == "computer_call":
            pending[text(item.get("call_id"))] = _ids(item.get("pending_safety_checks"))
            yield from _check_actions(path, item)
        elif item.get("type") == "computer_call_output":
            yield from _check_output(path, item, pending.get(text(item.get("call_id")), []))


def _check_actions(path: str, item: Item) -> Iterator[Violation]:
    if item.get("action") is None and item.get("actions") is None:
        yield Violation(path, "computer.action", "A computer call has an action, or actions.")
    for action in [fields(item.get("action")), *map(fields, items(item.get("actions")))]:
        kind = text(action.get("type"))
        if kind in _ACTIONS:
            yield from check_shape(join(path, "action"), action, _ACTIONS[kind])
        elif action:
            yield Violation(join(path, "action"), "computer.action", f"Invalid value: {shown(kind)} is no action.")


def _check_output(path: str, item: Item, pending: Sequence[str]) -> Iterator[Violation]:
    shot = fields(item.get("output"))
    yield from check_shape(join(path, "output"), shot, _SCREENSHOT)
    if not text(shot.get("image_url")) and not text(shot.get("file_id")):
        yield Violation(join(path, "output"), "computer.screenshot", "A screenshot has an image_url or a file_id.")
    for one in items(item.get("acknowledged_safety_checks")):
        yield from check_shape(join(path, "acknowledged_safety_checks"), one, _CHECK)
    missing = set(pending).difference(_ids(item.get("acknowledged_safety_checks")))
    if missing:
        message = f"The safety check {shown(min(missing))} has not been acknowledged."
        yield Violation(join(path, "acknowledged_safety_checks"), "computer.unacknowledged", message)


def _ids(checks: object) -> list[str]:
    return [text(fields(one).get("id")) for one in items(checks)]
