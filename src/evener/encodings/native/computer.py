"""A computer in the forms that models know: toolsets on Messages, items on Responses, predefined functions on Gemini. Pure.

Actions of a model become standard calls: `computer` with a list of actions, in pixels, and `navigate`. What the provider
wants a user to confirm first is part of the call, as `safety_checks`. The makers' words differ, but no word has two
meanings, so one table reads them all. Past calls are sent back as they were made, or as plain calls.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from evener.encodings.native import actions as a
from evener.encodings.native.form import Arguments, NativeCall, NativeForm, StandardCall
from evener.encodings.prepared import OwnTool
from evener.transcript.ask import Extra
from evener.transcript.blocks import HostedBlock, ImageBlock, Inline, Origin, Remote, ResultContent, Seal, TextBlock, ToolResult
from evener.wire.prefix import dumps

__all__ = ["COMPUTER_FORMS", "SAFETY_CHECKS", "write_page"]

SAFETY_CHECKS = "safety_checks"
"""The argument with what a user must confirm."""
GRID = (1000, 1000)
NOTCH = 100
"""Pixels of one notch of a wheel."""
PAGE = re.compile(r"\[page ([^\s\]]+)\]")


def write_page(address: str) -> str:
    """Return how a result says which page the screen shows."""
    return f"[page {address}]"


# Actions, in all vocabularies.

Given = Mapping[str, object]
Read = Callable[[Given, a.Screen], list[a.Action]]
"""Returns the actions that arguments mean. Raises KeyError, TypeError or ValueError where they do not fit."""


def _point(place: object) -> a.Point:
    match place:
        case [x, y] | {"x": x, "y": y}:
            return a.Point(_whole(x), _whole(y))
    raise ValueError("expected the coordinates of a point; elements are not supported")


def _place(given: Given) -> a.Point | None:
    """Return the point of an action; None stands for the present position of the pointer."""
    place = given.get("coordinate") or given.get("target") or (given if "x" in given else None)
    return None if place is None else _point(place)


def _whole(value: object) -> int:
    if not isinstance(value, int | float) or value < 0:
        raise ValueError("a coordinate must be a number, 0 or more")
    return int(value)


def _keys(given: Given) -> tuple[str, ...]:
    """Return the keys to hold, from a list or from a chord such as `ctrl+a`."""
    held = given.get("keys") or given.get("text") or given.get("modifiers") or ()
    return _chord(held) if isinstance(held, str) else tuple(map(str, cast("list[object]", held)))


def _chord(text: str) -> tuple[str, ...]:
    """Split `ctrl+shift+t`; a plus at the end is the key."""
    head, plus = (text[:-1].removesuffix("+"), ("+",)) if text.endswith("+") else (text, ())
    return (*(key for key in head.split("+") if key), *plus)


def _click(button: str = "", count: int = 1) -> Read:
    def read(given: Given, _screen: a.Screen) -> list[a.Action]:
        pressed = button or str(given.get("button", "left")).replace("wheel", "middle")
        return [msgspec.convert({"at": _place(given), "button": pressed, "count": count, "keys": _keys(given)}, a.Click)]

    return read


def _drag(given: Given, _screen: a.Screen) -> list[a.Action]:
    match given:
        case {"path": [*path]}:
            pass
        case {"from": start, "target": end} | {"start_coordinate": start, "coordinate": end}:
            path = [start, end]
        case {"x": x, "y": y, "destination_x": right, "destination_y": down} | {
            "start_x": x,
            "start_y": y,
            "end_x": right,
            "end_y": down,
        }:
            path = [[x, y], [right, down]]
        case _:
            raise ValueError("expected the start and the end of the drag")
    return [msgspec.convert({"path": [_point(step) for step in path], "keys": _keys(given)}, a.Drag)]


SIDES = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def _scroll(usual: int = 0) -> Read:
    """Return a function that reads scrolling: in pixels, in notches of a wheel, or in thousandths of the screen."""

    def read(given: Given, screen: a.Screen) -> list[a.Action]:
        at, keys = _place(given), _keys(given)
        if "scroll_y" in given:
            return [
                msgspec.convert({"dx": given.get("scroll_x", 0), "dy": given["scroll_y"], "at": at, "keys": keys}, a.Scroll)
            ]
        x, y = SIDES[str(given.get("scroll_direction") or given.get("direction"))]
        if "scroll_direction" in given:
            pixels = _whole(given.get("scroll_amount", 3)) * NOTCH
        elif usual:
            pixels = _whole(given.get("magnitude_in_pixels", usual))
        else:
            pixels = _whole(given.get("magnitude", 800)) * screen[1 if y else 0] // GRID[0]
        return [a.Scroll(x * pixels, y * pixels, at, keys)]

    return read


def _type(given: Given, _screen: a.Screen) -> list[a.Action]:
    """Read a text to type. One vendor's action also clicks, clears the field first, and presses a key after it."""
    at = _place(given)
    found: list[a.Action] = [a.Click(at)] if at else []
    if at and given.get("clear_before_typing", True):
        found += [a.Keypress(("ControlOrMeta", "a")), a.Keypress(("Backspace",))]
    found.append(a.Type(str(given["text"])))
    return [*found, a.Keypress(("Enter",))] if given.get("press_enter", at is not None) else found


def _press(given: Given, _screen: a.Screen) -> list[a.Action]:
    """Read keys to press: a list is one chord, a text has chords separated by spaces."""
    said = given.get("keys") or given.get("key") or given["text"]
    chords = [_chord(one) for one in said.split()] if isinstance(said, str) else [_keys(given)]
    held = {name: given[field] for field, name in (("repeat", "repeat"), ("duration", "seconds")) if given.get(field)}
    return [msgspec.convert({"keys": chord, **held}, a.Keypress) for chord in chords]


def _wait(given: Given, _screen: a.Screen) -> list[a.Action]:
    return [a.Delay(min(float(str(given.get("duration", given.get("seconds", a.Delay().seconds)))), 30.0))]


def _at(make: type[a.Move] | type[a.MouseDown] | type[a.MouseUp]) -> Read:
    return lambda given, _: [msgspec.convert({"at": _place(given)}, make)]


def _go(url: str = "") -> Read:
    return lambda given, _: [a.Navigate(url or str(given["url"]))]


def _look(_given: Given, _screen: a.Screen) -> list[a.Action]:
    return [a.Screenshot()]


WORDS: Mapping[str, Read] = {
    **dict.fromkeys(("screenshot", "take_screenshot", "open_web_browser"), _look),
    **dict.fromkeys(("left_click", "click_at"), _click("left")),
    "click": _click(),
    "right_click": _click("right"),
    "middle_click": _click("middle"),
    "double_click": _click("left", 2),
    "triple_click": _click("left", 3),
    **dict.fromkeys(("mouse_move", "move", "hover", "hover_at"), _at(a.Move)),
    **dict.fromkeys(("left_mouse_down", "mouse_down"), _at(a.MouseDown)),
    **dict.fromkeys(("left_mouse_up", "mouse_up"), _at(a.MouseUp)),
    **dict.fromkeys(("left_click_drag", "drag", "drag_and_drop"), _drag),
    "scroll": _scroll(300),
    **dict.fromkeys(("scroll_at", "scroll_document"), _scroll()),
    **dict.fromkeys(("type", "type_text_at"), _type),
    **dict.fromkeys(("key", "hold_key", "keypress", "press_key", "hotkey", "key_combination"), _press),
    "wait": _wait,
    "wait_5_seconds": lambda *_: [a.Delay(5.0)],
    "navigate": _go(),
    "go_back": _go("back"),
    "go_forward": _go("forward"),
}
"""What is done by the words of all makers: no word means two things."""


def _standard(actions: list[a.Action], checks: Sequence[Mapping[str, object]]) -> StandardCall | None:
    beside = {SAFETY_CHECKS: list(checks)} if checks else {}
    match actions:
        case []:
            return None
        case [a.Navigate(url)]:
            return "navigate", {"url": url, **beside}
    return "computer", {"actions": msgspec.to_builtins(actions), **beside}


def _reader(*, under: str = "", grid: bool = False) -> Callable[..., StandardCall | None]:
    """Return the function that reads calls.

    `under` names the argument that contains the action, unless the call's name is the action.
    """

    def read(given: Arguments, name: str, screen: a.Screen) -> StandardCall | None:
        found = WORDS.get(str(given.get(under)) if under else name)
        try:
            actions = found(given, screen) if found else []
        except (KeyError, TypeError, ValueError):  # msgspec's is one of them
            return None
        return _standard([a.rescale(one, GRID, screen) for one in actions] if grid else actions, _list_confirmations(given))

    return read


def _list_confirmations(given: Given) -> list[dict[str, str]]:
    """Return what a user must confirm before a function is called."""
    match given.get("safety_decision"):
        case {"decision": decision, **more} if decision not in ("regular", "allow", "allowed"):
            return [{"code": str(decision), "message": str(more.get("explanation", ""))}]
    return []


class _Item(msgspec.Struct):
    actions: list[dict[str, object]] = []
    action: dict[str, object] | None = None
    pending_safety_checks: list[dict[str, str | None]] = []


def _read_item(given: Arguments, _name: str, screen: a.Screen) -> StandardCall | None:
    """Read a call with one action, or with several."""
    try:
        item = msgspec.convert(given, _Item)
        each = [WORDS[str(one["type"])](one, screen) for one in item.actions or [item.action or {}]]
    except (KeyError, TypeError, ValueError):
        return None
    checks = [{name: text for name, text in one.items() if text} for one in item.pending_safety_checks]
    return _standard([action for actions in each for action in actions], checks)


# Results.


def _split_page(result: ToolResult) -> tuple[str, list[ResultContent]]:
    """Return the address of the page that a result shows, and its other content."""
    address, rest = "", list[ResultContent]()
    for block in result.content:
        found = PAGE.fullmatch(block.text) if isinstance(block, TextBlock) else None
        address = found[1] if found else address
        rest += [] if found else [block]
    return address, rest


def _answer_member(result: ToolResult, call: NativeCall, target: Origin) -> ToolResult:
    """Return a result for a member of a toolset. The address of a browser's page is a separate block."""
    address, content = _split_page(result)
    family = COMPUTER_FORMS[call.form].family
    if family == "browser" and address and not result.is_error:
        tab = {"tab_id": "1", "title": "", "url": address, "active": True}
        state = dumps({"type": "browser_state", "tabs": [tab]}).decode()
        result = replace(result, content=(*content, HostedBlock(state, target.wire, f"page {address}", "result")))
    return replace(result, seal=Seal(dumps({"toolset_name": family}).decode(), target))


def _answer_function(result: ToolResult, call: NativeCall, target: Origin) -> ToolResult:
    """Return a result whose response is an object: the address, and the acknowledged safety checks."""
    if result.is_error:
        return result
    address, content = _split_page(result)
    words = "\n".join(block.text for block in content if isinstance(block, TextBlock))
    response = {"url": address, "output": words}
    response["safety_acknowledgement"] = (
        "true" if _list_confirmations(msgspec.json.decode(call.given, type=dict[str, object])) else ""
    )
    said = TextBlock(dumps({name: text for name, text in response.items() if text}).decode())
    seal = Seal('{"functionResponse":{"response":{"json":true}}}', target)
    return replace(result, content=(said, *(one for one in content if not isinstance(one, TextBlock))), seal=seal)


def _answer_item(result: ToolResult, call: NativeCall, _target: Origin) -> dict[str, object]:
    """Return the result item with the last screenshot and the acknowledged safety checks. A call that ran was confirmed."""
    pending = msgspec.json.decode(call.given, type=_Item).pending_safety_checks
    image = next(block for block in reversed(result.content) if isinstance(block, ImageBlock))
    data = f"data:{image.media_type};base64,{image.source.data}" if isinstance(image.source, Inline) else ""
    shot = {"type": "computer_screenshot", "image_url": image.source.url if isinstance(image.source, Remote) else data}
    return {"type": "computer_call_output", "output": shot, **({"acknowledged_safety_checks": pending} if pending else {})}


# Forms.

MESSAGES, RESPONSES, GEMINI = "anthropic_messages", "openai_responses", "gemini"


def _toolset(type: str, family: str, members: str, off: str, *tools: str) -> NativeForm:
    declaration = {"type": type, "configs": {name: {"enabled": False} for name in off.split()}}
    return NativeForm(
        wire=MESSAGES, stands_for=tools, needs=tools, declare=lambda _: declaration, call=family, family=family,
        members=(*members.split(), *off.split()), read=_reader(), answer=_answer_member,
    )  # fmt: skip


def _older(version: str, beta: str) -> NativeForm:
    def declare(own: OwnTool) -> Mapping[str, object]:
        width, height = own.screen
        return {"type": version, "name": "computer", "display_width_px": width, "display_height_px": height}

    return NativeForm(
        wire=MESSAGES, stands_for=("computer",), needs=("computer",), declare=declare, call="computer",
        read=_reader(under="action"), extra=Extra(MESSAGES, headers=(("anthropic-beta", beta),)),
    )  # fmt: skip


def _items(declare: Callable[[OwnTool], Mapping[str, object]], extra: Extra | None = None) -> NativeForm:
    return NativeForm(
        wire=RESPONSES, stands_for=("computer",), needs=("computer",), declare=declare, call="computer_call",
        read=_read_item, answer=_answer_item, is_item=True, needs_picture=True, extra=extra,
    )  # fmt: skip


def _preview(own: OwnTool) -> Mapping[str, object]:
    size = {"display_width": own.screen[0], "display_height": own.screen[1]}
    return {"type": "computer_use_preview", **size, "environment": "browser" if own.browses else "linux"}


def _functions(members: str, off: str, *needs: str) -> NativeForm:
    def declare(own: OwnTool) -> Mapping[str, object]:
        environment = "ENVIRONMENT_BROWSER" if own.browses else "ENVIRONMENT_DESKTOP"
        return {"computerUse": {"environment": environment, "excludedPredefinedFunctions": off.split()}}

    return NativeForm(
        wire=GEMINI, stands_for=("computer", "navigate"), needs=needs, declare=declare, call="computer_use",
        members=(*members.split(), *off.split()), read=_reader(grid=True), answer=_answer_function,
    )  # fmt: skip


POINTER = (
    "screenshot left_click right_click middle_click double_click triple_click mouse_move left_click_drag left_mouse_down "
    "left_mouse_up scroll type key hold_key wait"
)
PAGES = "zoom read_page get_page_text find form_input scroll_to list_tabs new_tab switch_tab close_tab"
"""What a browser of ours has not: elements by reference, tabs, and a closer look."""
FUNCTIONS = (
    "take_screenshot click double_click triple_click middle_click right_click mouse_down mouse_up move type drag_and_drop wait "
    "press_key hotkey scroll go_back navigate go_forward"
)
OLDER = (
    "open_web_browser wait_5_seconds go_back go_forward navigate click_at hover_at type_text_at key_combination "
    "scroll_document scroll_at drag_and_drop"
)
DESK, PAGE_TOO = ("computer",), ("computer", "navigate")
COMPUTER_FORMS: Mapping[str, NativeForm] = {
    "browser_toolset_20260801": _toolset("browser_toolset_20260801", "browser", f"{POINTER} navigate hover", PAGES, *PAGE_TOO),
    "computer_toolset_20260801": _toolset("computer_toolset_20260801", "computer", POINTER, "cursor_position zoom", *DESK),
    "computer_20251124": _older("computer_20251124", "computer-use-2025-11-24"),
    "computer_20250124": _older("computer_20250124", "computer-use-2025-01-24"),
    "computer": _items(lambda _: {"type": "computer"}),
    "computer_use_preview": _items(_preview, Extra(RESPONSES, '{"truncation":"auto"}')),
    "computer_use": _functions(FUNCTIONS, "key_down key_up", *DESK),
    "computer_use_2025": _functions(OLDER, "search", *PAGE_TOO),
}
"""By the type that a row names. Gemini has one type and two vocabularies: that of 3.5, and that of the models before it."""
