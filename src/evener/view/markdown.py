"""Markdown as a tree of plain values: [tag, attributes, children]. A page makes elements of them and never parses HTML."""

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

LARGEST = 50_000
"""Characters; a longer text is shown as it is."""
SAFE = ("http://", "https://", "mailto:")
NAMES = {
    "paragraph": "p",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "blockquote": "blockquote",
    "strong": "strong",
    "em": "em",
    "s": "s",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
    "hr": "hr",
    "hardbreak": "br",
}


@lru_cache(1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def parse_markdown(text: str) -> list[object]:
    """Return the tree; empty for a text that is too long, or for one plain paragraph."""
    if not text or len(text) > LARGEST:
        return []
    from markdown_it.tree import SyntaxTreeNode

    try:
        return [_convert(node) for node in SyntaxTreeNode(_parser().parse(text)).children]
    except RecursionError:
        return []


def _convert(node: "SyntaxTreeNode") -> object:
    match node.type:
        case "text" | "softbreak" | "html_inline" | "html_block":
            return "\n" if node.type == "softbreak" else node.content
        case "code_inline":
            return ["code", {}, [node.content]]
        case "fence" | "code_block":
            return ["pre", {"lang": node.info.split(" ")[0][:20] if node.type == "fence" else ""}, [node.content]]
        case "heading":
            return [node.tag, {}, _convert_children(node)]
        case "link":
            url = str(node.attrs.get("href", ""))
            return (
                ["a", {"href": url}, _convert_children(node)]
                if url.startswith(SAFE)
                else ["span", {}, [*_convert_children(node), f" ({url})"]]
            )
        case "image":  # never fetched: the page loads nothing from elsewhere
            return ["span", {}, [f"[image: {node.content} {node.attrs.get('src', '')}]"]]
        case "inline":
            return ["", {}, _convert_children(node)]
        case kind:
            return [
                NAMES.get(kind, "span"),
                {},
                _convert_children(node) if node.children else [node.content] if _has_content(node) else [],
            ]


def _has_content(node: "SyntaxTreeNode") -> bool:
    return node.type not in ("hr", "hardbreak") and bool(node.content)


def _convert_children(node: "SyntaxTreeNode") -> list[object]:
    return [_convert(child) for child in node.children]
