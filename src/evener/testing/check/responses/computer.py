"""Computer calls of the Responses wire: the item with its actions, and the screenshot that answers it.

Written from the vendor's SDK. The output must acknowledge each safety check that the API asked for.
"""

from collections.abc import Iterator, Mapping, Sequence

from evener.testing.check.shape import Violation, check_shape, fields, items, join, shape, shown, text

_STATUS = "status: 'in_progress'|'completed'|'incomplete'"
CALL = shape(f"type id call_id: str, pending_safety_checks: list, {_STATUS}", "action: object, actions: list")
OUTPUT = shape("type call_id: str, output: object", f"id: str, acknowledged_safety_checks: list, {_STATUS}")
TOOL = shape("type: str")
PREVIEW = shape("type: str, display_width display_height: int, environment: 'windows'|'mac'|'linux'|'ubuntu'|'browser'")
_ACTIONS = {
    "click": shape("type: str, x y: int, button: 'left'|'right'|'wheel'|'back'|'forward'", "keys: list"),
    "double_click": shape("type: str, x y: int", "keys: list"),
    "drag": shape("type: str, path: list", "keys: list"),
    "keypress": shape("type: str, keys: list"),
    "move": shape("type: str, x y: int", "keys: list"),
    "screenshot": shape("type: str"),
    "scroll": shape("type: str, x y scroll_x scroll_y: int", "keys: list"),
    "type": shape("type text: str"),
    "wait": shape("type: str"),
}
_SCREENSHOT = shape("type: 'computer_screenshot'", "image_url file_id: str")
_CHECK = shape("id: str", "code message: str")

Item = Mapping[str, object]


def check_computers(listed: Sequence[Item]) -> Iterator[Violation]:
    """Report errors in computer calls and their outputs."""
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
        yield Violation(path, "computer.action", "A computer call must have `action` or `actions`.")
    for action in [fields(item.get("action")), *map(fields, items(item.get("actions")))]:
        kind = text(action.get("type"))
        if kind in _ACTIONS:
            yield from check_shape(join(path, "action"), action, _ACTIONS[kind])
        elif action:
            yield Violation(join(path, "action"), "computer.action", f"Invalid value: {shown(kind)} is not an action.")


def _check_output(path: str, item: Item, pending: Sequence[str]) -> Iterator[Violation]:
    shot = fields(item.get("output"))
    yield from check_shape(join(path, "output"), shot, _SCREENSHOT)
    if not text(shot.get("image_url")) and not text(shot.get("file_id")):
        yield Violation(join(path, "output"), "computer.screenshot", "A screenshot must have an image_url or a file_id.")
    for one in items(item.get("acknowledged_safety_checks")):
        yield from check_shape(join(path, "acknowledged_safety_checks"), one, _CHECK)
    missing = set(pending).difference(_ids(item.get("acknowledged_safety_checks")))
    if missing:
        message = f"The safety check {shown(min(missing))} has not been acknowledged."
        yield Violation(join(path, "acknowledged_safety_checks"), "computer.unacknowledged", message)


def _ids(checks: object) -> list[str]:
    return [text(fields(one).get("id")) for one in items(checks)]
