"""Texts that try to run, to load, or to hide something in a page: for every field that shows text."""

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
    "one\u2028two\u2029three".replace("\u2028", " ").replace("\u2029", " "),
    "\u200e\u200f\u202a\u202b\u202c\u202d",
    "e\u0301" * 50,
]
WRAPS = ["{}", "x{}x", "{}\n{}", "  {}", '"{}"']


def _payloads() -> list[str]:
    texts = [*TAGS, *MARKDOWN, *TEMPLATES, *HIDDEN]
    made = [wrap.replace("{}", text) for wrap in WRAPS for text in texts]
    return [*dict.fromkeys(made), "A" * 10_000_000]


PAYLOADS = _payloads()
