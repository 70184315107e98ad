"""Computers and browsers on the Messages wire: their declarations, the calls of their members, and the results.

Written from the vendor's SDK (its types, and the errors of the API that its runner mentions) and from the sheet, section 5.
"""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.anthropic.turns import MergedTurn, Placed
from evener.testing.check.scope import Scope
from evener.testing.check.shape import Violation, check_shape, fields, items, join, shape, shown, text

_POINTER = (
    *("key", "hold_key", "type", "mouse_move", "left_mouse_down", "left_mouse_up", "left_click", "left_click_drag", "scroll"),
    *("right_click", "middle_click", "double_click", "triple_click", "wait", "screenshot", "zoom"),
)
MEMBERS: Mapping[str, frozenset[str]] = {
    "computer": frozenset((*_POINTER, "cursor_position")),
    "browser": frozenset(
        (
            *(*_POINTER, "hover", "navigate", "list_tabs", "new_tab", "switch_tab", "close_tab", "read_page", "get_page_text"),
            *("read_console", "read_network", "find", "form_input", "file_upload", "scroll_to", "javascript_exec"),
        )
    ),
}
_TOOLSETS = {"computer_toolset_20260801": "computer", "browser_toolset_20260801": "browser"}
_TOOLSET = shape("type: str", "configs cache_control: object")
_MEMBER = shape("", "enabled defer_loading: bool")
_SINGLE = shape("type name: str, display_width_px display_height_px: int", open=True)
_BETAS = {
    "computer_20241022": "computer-use-2024-10-22",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
}
_WITHOUT_SINGLE = re.compile(r"claude-(opus|sonnet|haiku)-5[-.]5.*|claude-fable-5[-.]2.*")
_STATE = shape("type: str, tabs: list", "state_changes: list, cache_control: object")
_TAB = shape("tab_id title url: str", "active: bool")


def check_computers(body: Mapping[str, object], turns: list[MergedTurn], scope: Scope) -> Iterator[Violation]:
    """Report errors in declarations of computers, and in calls and results of their members."""
    for index, tool in enumerate(map(fields, items(body.get("tools")))):
        path, kind = f"tools.{index}", text(tool.get("type"))
        if kind in _TOOLSETS:
            yield from _check_toolset(path, tool, MEMBERS[_TOOLSETS[kind]])
        elif kind in _BETAS:
            yield from _check_single(path, kind, tool, body, scope)
    families: dict[str, str] = {}
    for placed in (placed for turn in turns for placed in turn.blocks):
        if placed.kind == "tool_use":
            family, name = text(placed.block.get("toolset_name")), text(placed.block.get("name"))
            families[text(placed.block.get("id"))] = family
            if family and name not in MEMBERS.get(family, ()):
                yield Violation(placed.path, "toolset.member", f"{shown(name)} is not a member of the toolset {shown(family)}")
        elif placed.kind == "tool_result":
            yield from _check_result(placed, families.get(placed.result_of, ""))


def _check_toolset(path: str, tool: Mapping[str, object], members: frozenset[str]) -> Iterator[Violation]:
    yield from check_shape(path, tool, _TOOLSET)
    for name, config in fields(tool.get("configs")).items():
        if name not in members:
            yield Violation(join(path, f"configs.{name}"), "toolset.config", "Extra inputs are not permitted")
        elif config is not None:
            yield from check_shape(join(path, f"configs.{name}"), config, _MEMBER)


def _check_single(
    path: str, kind: str, tool: Mapping[str, object], body: Mapping[str, object], scope: Scope
) -> Iterator[Violation]:
    yield from check_shape(path, tool, _SINGLE)
    betas = [*items(body.get("anthropic_beta")), *(scope.betas or ())]
    if scope.betas is not None and _BETAS[kind] not in betas:
        yield Violation(path, "computer.beta", f"Input tag {shown(kind)} needs the beta {_BETAS[kind]!r}")
    if _WITHOUT_SINGLE.fullmatch(text(body.get("model"))) and "anthropic_version" not in body:
        yield Violation(path, "computer.model", f"{shown(kind)} is not supported on this model")


def _check_result(placed: Placed, family: str) -> Iterator[Violation]:
    """Report a result without the name of its call's toolset, and a browser's state that is repeated or in an error."""
    block, path = placed.block, placed.path
    if text(block.get("toolset_name")) != family:
        yield Violation(join(path, "toolset_name"), "toolset.result", "toolset_name must be that of the paired tool_use")
    states = [part for part in map(fields, items(block.get("content"))) if part.get("type") == "browser_state"]
    if states and (family != "browser" or block.get("is_error") is True or len(states) > 1):
        message = "at most one browser_state, only on a non-error result of a browser toolset member"
        yield Violation(join(path, "content"), "browser_state.place", message)
    for state in states:
        yield from check_shape(join(path, "content"), state, _STATE)
        tabs = [fields(tab) for tab in items(state.get("tabs"))]
        for tab in tabs:
            yield from check_shape(join(path, "content.tabs"), tab, _TAB)
        if tabs and sum(tab.get("active") is True for tab in tabs) != 1:
            yield Violation(join(path, "content.tabs"), "browser_state.active", "exactly one tab must be active")
