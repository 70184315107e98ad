"""A computer as models know it: toolsets on Messages, items on Responses, predefined functions on Gemini. Pure.

What a model wants done becomes standard calls: `computer` with a list of actions, in pixels, and `navigate`. What the provider
wants a user to confirm first goes with the call, as `safety_checks`. The words of the makers' vocabularies differ, but no word
means two things, so one table reads them all. Past calls go back as they were made, or as plain calls.
"""

import re
from collections.abc import Callable, Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from evener.encodings.native.actions import (
    Action,
    Click,
    Drag,
    Keypress,
    MouseDown,
    MouseUp,
    Move,
    Navigate,
    Point,
    Screen,
    Screenshot,
    Scroll,
    Type,
    Wait,
    rescale,
)
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
Read = Callable[[Given, Screen], list[Action]]
"""Returns the actions that arguments mean. Raises KeyError, TypeError or ValueError where they do not fit."""


def _point(given: Given, of: str = "") -> Point | None:
    match given:
        case {"coordinate": [x, y]} if not of:
            return Point(_whole(x), _whole(y))
        case {"start_coordinate": [x, y]} if of == "start_":
            return Point(_whole(x), _whole(y))
        case {"target": {"x": x, "y": y}} if not of:
            return Point(_whole(x), _whole(y))
        case {"target": _}:
            raise ValueError("an element of the page, whose place is not known")
    x, y = given.get(f"{of}x"), given.get(f"{of}y")
    return None if x is None or y is None else Point(_whole(x), _whole(y))


def _whole(value: object) -> int:
    if not isinstance(value, int | float) or value < 0:
        raise ValueError("no place on a screen")
    return int(value)


def _keys(given: Given) -> tuple[str, ...]:
    """Return the keys that are held: a list, or a chord."""
    held = given.get("keys") or given.get("text") or given.get("modifiers") or ()
    return _chord(held) if isinstance(held, str) else tuple(map(str, cast("list[object]", held)))


def _chord(text: str) -> tuple[str, ...]:
    """Split `ctrl+shift+t`; a plus at the end is the key."""
    head, plus = (text[:-1].removesuffix("+"), ("+",)) if text.endswith("+") else (text, ())
    return (*(key for key in head.split("+") if key), *plus)


def _click(button: str = "", count: int = 1) -> Read:
    names = {"wheel": "middle"}

    def read(given: Given, _screen: Screen) -> list[Action]:
        pressed = str(button or given.get("button", "left"))
        found = {"at": _point(given), "button": names.get(pressed, pressed), "count": count, "keys": _keys(given)}
        return [msgspec.convert(found, Click)]

    return read


def _drag(given: Given, _screen: Screen) -> list[Action]:
    match given:
        case {"path": [*steps]}:
            path = [_point(cast("Given", step)) for step in steps]
        case {"from": {"x": x, "y": y}}:
            path = [Point(_whole(x), _whole(y)), _point(given)]
        case {"start_coordinate": _}:
            path = [_point(given, "start_"), _point(given)]
        case {"destination_x": _}:
            path = [_point(given), _point(given, "destination_")]
        case _:
            path = [_point(given, "start_"), _point(given, "end_")]
    return [msgspec.convert({"path": path, "keys": _keys(given)}, Drag)]


SIDES = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def _scroll(given: Given, screen: Screen) -> list[Action]:
    at, keys = _point(given), _keys(given)
    if "scroll_x" in given or "scroll_y" in given:
        return [Scroll(int(str(given.get("scroll_x", 0))), int(str(given.get("scroll_y", 0))), at, keys)]
    x, y = SIDES[str(given.get("scroll_direction") or given.get("direction"))]
    far = given.get("magnitude_in_pixels")
    if far is None and "scroll_direction" in given:
        far = _whole(given.get("scroll_amount", 3)) * NOTCH
    elif far is None:  # a part of the screen, in thousandths
        far = _whole(given.get("magnitude", 800)) * screen[1 if y else 0] // GRID[0]
    return [Scroll(x * _whole(far), y * _whole(far), at, keys)]


def _type(given: Given, _screen: Screen) -> list[Action]:
    """Read a text; one vocabulary clicks before it, clears the field, and presses a key after it."""
    at = _point(given)
    found: list[Action] = [Click(at)] if at else []
    if at and given.get("clear_before_typing", True):
        found += [Keypress(("ControlOrMeta", "a")), Keypress(("Backspace",))]
    found.append(Type(str(given["text"])))
    return [*found, Keypress(("Enter",))] if given.get("press_enter", at is not None) else found


def _press(given: Given, _screen: Screen) -> list[Action]:
    """Read keys: a list is a chord, a text has chords with spaces between them."""
    said = given.get("keys") or given.get("key") or given["text"]
    chords = [_chord(one) for one in said.split()] if isinstance(said, str) else [_keys(given)]
    repeat, seconds = given.get("repeat", 1), given.get("duration", 0)
    return [msgspec.convert({"keys": chord, "repeat": repeat, "seconds": seconds}, Keypress) for chord in chords]


def _wait(given: Given, _screen: Screen) -> list[Action]:
    return [Wait(min(float(str(given.get("duration", given.get("seconds", Wait().seconds)))), 30.0))]


def _at(make: type[Move] | type[MouseDown] | type[MouseUp]) -> Read:
    return lambda given, _: [msgspec.convert({"at": _point(given)}, make)]


def _go(url: str = "") -> Read:
    return lambda given, _: [Navigate(url or str(given["url"]))]


def _look(_given: Given, _screen: Screen) -> list[Action]:
    return [Screenshot()]


CLICKS = {"right_click": _click("right"), "middle_click": _click("middle"), "triple_click": _click("left", 3)}
MEMBERS: Mapping[str, Read] = {
    "screenshot": _look,
    "left_click": _click("left"),
    **CLICKS,
    "double_click": _click("left", 2),
    "mouse_move": _at(Move),
    "left_click_drag": _drag,
    "left_mouse_down": _at(MouseDown),
    "left_mouse_up": _at(MouseUp),
    "scroll": _scroll,
    "type": _type,
    "key": _press,
    "hold_key": _press,
    "wait": _wait,
}
BROWSER_MEMBERS: Mapping[str, Read] = {**MEMBERS, "navigate": _go(), "hover": _at(Move)}
ITEM_ACTIONS: Mapping[str, Read] = {
    "screenshot": _look,
    "click": _click(),
    "double_click": _click("left", 2),
    "move": _at(Move),
    "drag": _drag,
    "scroll": _scroll,
    "type": _type,
    "keypress": _press,
    "wait": _wait,
}
FUNCTIONS: Mapping[str, Read] = {
    "take_screenshot": _look,
    "click": _click("left"),
    **CLICKS,
    "double_click": _click("left", 2),
    "move": _at(Move),
    "mouse_down": _at(MouseDown),
    "mouse_up": _at(MouseUp),
    "drag_and_drop": _drag,
    "type": _type,
    "scroll": lambda given, screen: _scroll({"magnitude_in_pixels": 300, **given}, screen),
    "press_key": _press,
    "hotkey": _press,
    "wait": _wait,
    "navigate": _go(),
    "go_back": _go("back"),
    "go_forward": _go("forward"),
}
OLDER_FUNCTIONS: Mapping[str, Read] = {
    "open_web_browser": _look,
    "click_at": _click("left"),
    "hover_at": _at(Move),
    "drag_and_drop": _drag,
    "scroll_at": _scroll,
    "scroll_document": _scroll,
    "type_text_at": _type,
    "key_combination": _press,
    "wait_5_seconds": lambda *_: [Wait(5.0)],
    "navigate": _go(),
    "go_back": _go("back"),
    "go_forward": _go("forward"),
}


def _standard(actions: list[Action], checks: list[dict[str, object]]) -> StandardCall | None:
    beside = {SAFETY_CHECKS: checks} if checks else {}
    match actions:
        case []:
            return None
        case [Navigate(url)]:
            return "navigate", {"url": url, **beside}
    return "computer", {"actions": msgspec.to_builtins(actions), **beside}


def _reader(words: Mapping[str, Read], *, under: str = "", grid: bool = False) -> Callable[..., StandardCall | None]:
    """Return the reader of calls in a vocabulary; `under` names the argument with the word, unless it is the call's name."""

    def read(given: Arguments, name: str, screen: Screen) -> StandardCall | None:
        found = words.get(str(given.get(under)) if under else name)
        try:
            actions = found(given, screen) if found else []
        except (KeyError, TypeError, ValueError):  # msgspec's is one of them
            return None
        return _standard([rescale(one, GRID, screen) for one in actions] if grid else actions, _asked(given))

    return read


def _asked(given: Given) -> list[dict[str, object]]:
    """Return what a user must confirm before a function is called."""
    match given.get("safety_decision"):
        case {"decision": decision, **more} if decision not in ("regular", "allow", "allowed"):
            return [{"code": str(decision), "message": str(more.get("explanation", ""))}]
    return []


def _read_item(item: Arguments, _name: str, screen: Screen) -> StandardCall | None:
    """Read a call with one action, or with several."""
    actions, checks = item.get("actions") or [item.get("action")], item.get("pending_safety_checks") or []
    found: list[Action] = []
    try:
        for one in cast("list[dict[str, object]]", actions):
            found += ITEM_ACTIONS[str(one["type"])](one, screen)
        kept = [{name: str(text) for name, text in one.items() if text} for one in cast("list[dict[str, object]]", checks)]
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return _standard(found, cast("list[dict[str, object]]", kept))


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
    """Return a result under the name of the set; the page that a browser shows is a block of its own."""
    address, content = _split_page(result)
    family = COMPUTER_FORMS[call.form].family
    if family == "browser" and address and not result.is_error:
        tab = {"tab_id": "1", "title": "", "url": address, "active": True}
        state = dumps({"type": "browser_state", "tabs": [tab]}).decode()
        result = replace(result, content=(*content, HostedBlock(state, target.wire, f"page {address}", "result")))
    return replace(result, seal=Seal(dumps({"toolset_name": family}).decode(), target))


def _answer_function(result: ToolResult, call: NativeCall, target: Origin) -> ToolResult:
    """Return a result whose response is an object: the address, and that what had to be confirmed was confirmed."""
    if result.is_error:
        return result
    address, content = _split_page(result)
    words = "\n".join(block.text for block in content if isinstance(block, TextBlock))
    response = {"url": address, "output": words}
    response["safety_acknowledgement"] = "true" if _asked(msgspec.json.decode(call.given, type=dict[str, object])) else ""
    said = TextBlock(dumps({name: text for name, text in response.items() if text}).decode())
    seal = Seal('{"functionResponse":{"response":{"json":true}}}', target)
    return replace(result, content=(said, *(one for one in content if not isinstance(one, TextBlock))), seal=seal)


def _answer_item(result: ToolResult, call: NativeCall, _target: Origin) -> dict[str, object]:
    """Return the item with the last picture, and with the checks that were confirmed: else the call had not run."""
    item = msgspec.json.decode(call.given, type=dict[str, object])
    checks = {"acknowledged_safety_checks": item["pending_safety_checks"]} if item.get("pending_safety_checks") else {}
    urls = [_url(block) for block in result.content if isinstance(block, ImageBlock)]
    return {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": urls[-1]}, **checks}


def _url(image: ImageBlock) -> str:
    match image.source:
        case Inline(data):
            return f"data:{image.media_type or 'image/png'};base64,{data}"
        case Remote(url):
            return url
    return ""


# Forms.

MESSAGES, RESPONSES, GEMINI = "anthropic_messages", "openai_responses", "gemini"


def _off(*names: str) -> dict[str, object]:
    return {name: {"enabled": False} for name in names}


def _toolset(type: str, family: str, words: Mapping[str, Read], off: Mapping[str, object], *tools: str) -> NativeForm:
    declaration = {"type": type, "configs": off}
    return NativeForm(
        wire=MESSAGES, stands_for=tools, needs=tools, declare=lambda _: declaration, call=family, members=(*words, *off),
        family=family, read=_reader(words), answer=_answer_member,
    )  # fmt: skip


def _older(version: str, beta: str) -> NativeForm:
    def declare(own: OwnTool) -> Mapping[str, object]:
        width, height = own.screen
        return {"type": version, "name": "computer", "display_width_px": width, "display_height_px": height}

    return NativeForm(
        wire=MESSAGES, stands_for=("computer",), needs=("computer",), declare=declare, call="computer",
        read=_reader(MEMBERS, under="action"), extra=Extra(MESSAGES, headers=(("anthropic-beta", beta),)),
    )  # fmt: skip


def _items(declare: Callable[[OwnTool], Mapping[str, object]], extra: Extra | None = None) -> NativeForm:
    return NativeForm(
        wire=RESPONSES, stands_for=("computer",), needs=("computer",), declare=declare, call="computer_call",
        read=_read_item, answer=_answer_item, is_item=True, needs_picture=True, extra=extra,
    )  # fmt: skip


def _preview(own: OwnTool) -> Mapping[str, object]:
    size = {"display_width": own.screen[0], "display_height": own.screen[1]}
    return {"type": "computer_use_preview", **size, "environment": "browser" if own.browses else "linux"}


def _functions(words: Mapping[str, Read], off: tuple[str, ...], *needs: str) -> NativeForm:
    def declare(own: OwnTool) -> Mapping[str, object]:
        environment = "ENVIRONMENT_BROWSER" if own.browses else "ENVIRONMENT_DESKTOP"
        return {"computerUse": {"environment": environment, "excludedPredefinedFunctions": list(off)}}

    return NativeForm(
        wire=GEMINI, stands_for=("computer", "navigate"), needs=needs, declare=declare, call="computer_use",
        members=(*words, *off), read=_reader(words, grid=True), answer=_answer_function,
    )  # fmt: skip


PAGES = ("read_page", "get_page_text", "find", "form_input", "scroll_to", "list_tabs", "new_tab", "switch_tab", "close_tab")
"""What a browser of ours has not: elements by reference, and tabs."""
COMPUTER_FORMS: Mapping[str, NativeForm] = {
    "browser_toolset_20260801": _toolset(
        "browser_toolset_20260801", "browser", BROWSER_MEMBERS, _off(*PAGES, "zoom"), "computer", "navigate"
    ),
    "computer_toolset_20260801": _toolset(
        "computer_toolset_20260801", "computer", MEMBERS, _off("cursor_position", "zoom"), "computer"
    ),
    "computer_20251124": _older("computer_20251124", "computer-use-2025-11-24"),
    "computer_20250124": _older("computer_20250124", "computer-use-2025-01-24"),
    "computer": _items(lambda _: {"type": "computer"}),
    "computer_use_preview": _items(_preview, Extra(RESPONSES, '{"truncation":"auto"}')),
    "computer_use": _functions(FUNCTIONS, ("key_down", "key_up"), "computer"),
    "computer_use_2025": _functions(OLDER_FUNCTIONS, ("search",), "computer", "navigate"),
}
"""By the type that a row names. Gemini has one type and two vocabularies: that of 3.5, and that of the models before it."""
