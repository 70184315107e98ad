"""A conversation as one HTML file without scripts. It loads nothing, and every text in it is escaped. Pure."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from html import escape

from evener.view.conversation import Piece, TalkItem

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "article{border-top:1px solid #8886;padding:.6rem 0}pre{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate}"
    "small{opacity:.75}"
)


def write_document(log: str, items: Iterable[TalkItem]) -> str:
    """Return the conversation as an HTML file."""
    body = "\n".join(line for item in items if item.kind != "asking" for line in _item(item))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width"><title>{_safe(log)}</title><style>{STYLE}</style></head>'
        f"<body><h1>{_safe(log)}</h1>\n{body}\n</body></html>\n"
    )


def _item(item: TalkItem) -> Iterator[str]:
    yield f'<article id="e{_safe(item.key)}"><small>[{item.n}] {_moment(item.at)}</small> '
    yield f"<b>{_safe(item.title or item.tool or item.kind)}</b> <small>{_safe(item.status)}</small>"
    if item.arguments:
        yield _piece(item.arguments)
    yield from map(_piece, item.pieces)
    yield from map(_piece, item.result)
    yield from (f"<p>loss: {_safe(str(loss))}</p>" for loss in item.losses)
    yield "</article>"


def _piece(piece: Piece) -> str:
    if piece.kind in ("image", "document"):
        return f"<p>[{piece.kind}, {_safe(piece.media_type)}]</p>"
    text = _safe(piece.text) + (f"\n... ({piece.length:,} characters)" if piece.length else "")
    return (
        f"<details><summary>reasoning</summary><pre>{text}</pre></details>"
        if piece.kind == "reasoning"
        else f"<pre>{text}</pre>"
    )


def _safe(text: str) -> str:
    """Return the text for HTML. Characters that change the reading direction are shown as escapes."""
    shown = "".join(f"\\u{ord(char):04x}" if _is_active(char) else char for char in text)
    return escape(shown)


def _is_active(char: str) -> bool:
    return (
        char in "\u061c\u200e\u200f"
        or "\u202a" <= char <= "\u202e"
        or "\u2066" <= char <= "\u2069"
        or (char < " " and char not in "\n\t")
    )


def _moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "invalid time"
