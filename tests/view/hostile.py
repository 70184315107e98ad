"""Texts that try to run, load or hide something in a page, and threads with such a text in every field of every event."""

from contextlib import suppress
from typing import Any

import msgspec

from evener import events as ev
from evener.errors import BadValue
from evener.store.protocol import Store
from tests.store.extras import samples
from tests.store.extras.samples import texts_of
from tests.view.stage import write

RUN = "window.ran=1"
TAGS = [
    f"<script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"<body onload={RUN}>",
    f"<details open ontoggle={RUN}>",
    f"<a href='javascript:{RUN}'>x</a>",
    f"<math><mtext><script>{RUN}</script></mtext></math>",
    f"<object data='data:text/html,<script>{RUN}</script>'></object>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example/>",
    f"<input autofocus onfocus={RUN}>",
    "<form action=https://evil.example><button>x</button></form>",
    f"<template><script>{RUN}</script></template>",
    f"</title></textarea></pre><script>{RUN}</script>",
    f"<!--><script>{RUN}</script>-->",
    f"<![CDATA[<script>{RUN}</script>]]>",
]
MARKDOWN = [
    f"[x](javascript:{RUN})",
    f"![x](javascript:{RUN})",
    "![x](https://evil.example/x.png)",
    f"[x](data:text/html,<script>{RUN}</script>)",
    f"<javascript:{RUN}>",
    f"[x]: javascript:{RUN}\n[x]",
    f"```html\n<script>{RUN}</script>\n```",
    f"| <script>{RUN}</script> |\n|---|\n| x |",
    f"[x](vbscript:{RUN})",
    f"[x](  java\tscript:{RUN})",
]
TEMPLATES = [
    f"${{{RUN}}}",
    f"{{{{{RUN}}}}}",
    f"`${{{RUN}}}`",
    f"'\"--></script><script>{RUN}</script>",
    f'{{"__html": "<script>{RUN}</script>"}}',
    '{"dangerouslySetInnerHTML": {"__html": "<img src=x onerror=window.ran=1>"}}',
    '{"type": "script", "props": {"children": "window.ran=1"}}',
    '["script", {}, ["window.ran=1"]]',
    '{"__proto__": {"ran": 1}}',
    '{"constructor": {"prototype": {"ran": 1}}}',
]
HIDDEN = [
    "rm -rf /\u202e txt.exe",
    "\u2066safe\u2069\u202eelif",
    "pay\u200b\u200b\u200b 3",
    "a\u00adb\u2060c\ufeff",
    "safe\x1b[8mhidden\x1b[0m",
    "safe\x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "\x00\x07\x7f",
    "one\u2028two\u2029three",
    "\u200e\u200f\u202a\u202b\u202c\u202d",
    "e\u0301" * 50,
]
GROUPS = {"tags": TAGS, "markdown": MARKDOWN, "templates": TEMPLATES, "hidden": HIDDEN}
WRAPS = ["{}", "x{}x", "{}\n{}", "  {}", '"{}"']


def _payloads() -> list[str]:
    texts = [*TAGS, *MARKDOWN, *TEMPLATES, *HIDDEN]
    made = [wrap.replace("{}", text) for wrap in WRAPS for text in texts]
    return [*dict.fromkeys(made), "A" * 10_000_000]


PAYLOADS = _payloads()


SHORT = 4_000
"""Characters in a field, where a text is longer: only what was said, and arguments, are as long as that."""
LONG = ("text", "raw", "arguments")
KEPT = ("data", "role", "wire", "form", "seal")
"""What must stay as it is: pictures, and fields that take one of a few words."""


def _story() -> list[ev.Event]:
    """Return events of every kind, in an order in which they can happen; what they ask for still waits in the end."""
    by_kind: dict[str, Any] = {type(event).__name__: event for event in samples.EVENTS}
    order = (
        "Configured Imported Prompted ModelCalled ModelFailed ModelCalled Replied ApprovalAsked ApprovalDecided CallStarted "
        "CallPaused CallFinished Steered MediaFetched ContextRestored Pinned Evicted Compacted CompactionFailed Cancelled "
        "Finished Prompted Continued Resumed ModelCalled Replied ApprovalAsked"
    ).split()
    assert {*order, "Opened"} == by_kind.keys()
    return [by_kind[name] for name in order]


def poison(event: ev.Event, text: str) -> ev.Event:
    """Return the event with this text in every field that may hold any text. Ids stay apart: they keep what they were."""
    value = msgspec.json.decode(ev.encode_event(event))
    for *way, last in texts_of(value):
        if last in KEPT or any(step in KEPT for step in way):
            continue
        holder = value
        for step in way:
            holder = holder[step]
        there = holder[last]
        planted = text if last in LONG and len(way) < 4 else text[:SHORT]
        holder[last] = msgspec.json.encode({"k": planted}).decode() if there.startswith("{") else planted + there
    return msgspec.convert(value, ev.Event)  # type: ignore[no-any-return]


async def furnish_hostile(store: Store, payloads: dict[str, str]) -> None:
    """Write one thread for each text, under the name that it is given with, with a branch; the text is in every field."""
    for name, text in payloads.items():
        await write(store, name, *(poison(event, text) for event in _story()), harness=text[:200].replace("/", "|"))
        with suppress(BadValue):  # what is too long for a label, or cannot be printed
            await store.describe(name, title=text[:150], tags=[text[:60]])
