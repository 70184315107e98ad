"""Finds problems in untrusted JSON that the decoder does not see or does not locate. Pure; linear in the size of the text.

The decoder accepts duplicate keys, and gives at best the byte of a broken escape. Python's own parser finds duplicate keys,
but it is used only once the nesting is known to be shallow: before that, a hostile text could fill the memory.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping

from evener.errors import BadDocument

BOM = b"\xef\xbb\xbf"
HIGH = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
LONE_SURROGATE = re.compile(HIGH + rb"(?!" + LOW + rb")|" + LOW + rb"(?<!" + HIGH + LOW + rb")")
TOKEN = re.compile(rb'(?P<text>"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))(?P<colon>\s*:)?|[][{},]', re.DOTALL)
VALUES = ("enum", "const", "default", "examples")
"""Keywords of a JSON Schema that hold values, not schemas."""
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords that hold schemas by names: no name in them is a keyword."""
MOST_WALKED = 1 << 20  # bytes; the path to a place further on takes too long to find


def checked_bytes(data: bytes | str, max_bytes: int) -> bytes:
    """Return the bytes of a document that is small enough, not empty, and text throughout."""
    if isinstance(data, str) and len(data) <= max_bytes:
        try:
            data = data.encode()
        except UnicodeEncodeError as error:
            raise _lone_surrogate(f"character {error.start:,}", "") from None
    if not isinstance(data, (bytes, str)):
        raise BadDocument(f"A document is bytes or str, not {type(data).__name__}. Read the file first.")
    if isinstance(data, str) or len(data) > max_bytes:
        unit = "characters" if isinstance(data, str) else "bytes"
        raise BadDocument(
            f"The document has {len(data):,} {unit}, but at most {max_bytes:,} bytes are read. "
            "If you trust it, load it with a larger max_bytes."
        )
    _check_encoding(data)
    for found in LONE_SURROGATE.finditer(data):
        if _backslashes_before(data, found.start()) % 2 == 0:
            raise _lone_surrogate(f"byte {found.start():,}", path_at(data, found.start()))
    return data


def path_at(body: bytes, end: int) -> str:
    """Return the path to the value at a byte, as in `messages[3].blocks[0].text`; empty when it is too far to walk."""
    if end > MOST_WALKED:
        return ""
    path: list[str | int] = []
    for token in TOKEN.finditer(body, 0, end):
        match token[0][:1]:
            case b"{":
                path.append("")
            case b"[":
                path.append(0)
            case b"]" | b"}":
                del path[-1:]
            case b"," if path and isinstance(path[-1], int):
                path[-1] += 1
            case b'"' if path and token["colon"]:
                path[-1] = token["text"][1:-1].decode(errors="replace")
    return "".join(f"[{step}]" if isinstance(step, int) else f".{short(step)}" for step in path).strip(".")


def repeated_key(text: str) -> str | None:
    """Return the path of a key that stands twice in one object; None when there is none. Only for text of a known shape."""
    try:
        json.loads(text, object_pairs_hook=_check_unique, parse_int=str)
    except _Repeated:
        return _find_repeated(json.loads(text, object_pairs_hook=_Pairs, parse_int=str), "")
    return None


def short(text: str) -> str:
    """Return a foreign text, cut to what fits in a message."""
    return text if len(text) <= 200 else f"{text[:200]}..."


def _backslashes_before(body: bytes, end: int) -> int:
    start = end
    while start:
        piece = body[max(0, start - 4096) : start]
        rest = len(piece.rstrip(b"\\"))
        start -= len(piece) - rest
        if rest:
            break
    return end - start


class _Repeated(Exception):
    """A key occurs twice."""


class _Pairs(list[tuple[str, object]]):
    """An object with all its keys."""


def _check_unique(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _Repeated


def _find_repeated(value: object, path: str) -> str | None:
    steps: list[tuple[str, object]] = []
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            steps.append((f"{path}.{key}".strip("."), item))
            if key in seen:
                return steps[-1][0]
            seen.add(key)
    elif isinstance(value, list):
        steps = [(f"{path}[{number}]", item) for number, item in enumerate(value)]
    return next((found for step, item in steps if (found := _find_repeated(item, step)) is not None), None)


def _check_encoding(body: bytes) -> None:
    if not body.strip():
        raise BadDocument("The document is empty. Check that the file was written to its end.")
    if body.startswith(BOM):
        raise BadDocument("The document begins with a byte order mark. Save it as UTF-8 without one.")
    try:
        body.decode()
    except UnicodeDecodeError as error:
        path = path_at(body, error.start)
        what = f"byte {error.start:,} is {body[error.start]:#04x} ({error.reason})"
        raise BadDocument(f"{path or 'The document'} is not UTF-8: {what}. Save it as UTF-8.", path=path) from None


def _lone_surrogate(where: str, path: str) -> BadDocument:
    place = f"{path} ({where})" if path else f"The document, at {where},"
    return BadDocument(
        f"{place} holds a lone surrogate, which is no character. Replace it in the text that the document was made from.",
        path=path,
    )


def is_deeper(value: object, levels: int) -> bool:
    """True if a decoded value is nested deeper than so many levels. Looks level by level, never by recursion."""
    level: list[object] = [value]
    for _ in range(levels):
        level = [inner for item in level for inner in inside(item)]
        if not level:
            return False
    return True


def inside(value: object) -> list[object]:
    """Return what an object or a list holds; nothing for anything else."""
    match value:
        case dict():
            return list(value.values())
        case list():
            return value
    return []


def resolve_pointer(root: Mapping[str, object], reference: str) -> object:
    """Return the value that a JSON pointer such as `#/$defs/City` refers to; None for any other reference.

    The fragment is decoded before it is split (RFC 6901, section 6), so `%2F` separates two steps.
    """
    if reference != "#" and not reference.startswith("#/"):
        return None
    from urllib.parse import unquote

    found: object = root
    for step in unquote(reference[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        match found:
            case dict():
                found = found.get(name)
            case list() if name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            case _:
                return None
    return found


def find_cycle(names: Iterable[str], onward: Callable[[str], Iterable[str]]) -> str | None:
    """Return a name that leads back to itself; None when none does. Depth first, never by recursion."""
    is_open: dict[str, bool] = {}
    stack = list(names)
    while stack:
        name = stack[-1]
        if name in is_open:
            is_open[stack.pop()] = False
            continue
        is_open[name] = True
        for other in onward(name):
            if is_open.get(other, False):
                return other
            if other not in is_open:
                stack.append(other)
    return None


def list_references(schema: object, keywords: tuple[str, ...] = ("$ref",)) -> set[str]:
    """Return the references in a schema by these keywords; what only looks like one, in the values that it lists, is none."""
    found: set[str] = set()
    left = [schema]
    while left:
        node = left.pop()
        if not isinstance(node, dict):
            left += inside(node)
            continue
        found |= {node[name] for name in keywords if isinstance(node.get(name), str)}
        for keyword, part in node.items():
            left += inside(part) if keyword in NAMED else () if keyword in VALUES else (part,)
    return found
