"""Content blocks of the Anthropic Messages wire: their fields, their roles, their sources. One block at a time.

Never looks at other blocks or turns (see turns) and never at caching (see cache). Unknown fields in a block are refused by the
API at every depth ("Extra inputs are not permitted"); the tables follow the sheet, section 4.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from evener.testing.check.scope import Scope
from evener.testing.check.shape import (
    KINDS,
    Kind,
    ObjectShape,
    Violation,
    check_shape,
    fields,
    items,
    join,
    limited,
    one_of,
    read_kinds,
    shape,
    shown,
    text,
    text_like,
)

STRICT_VERSION = "2026-10-21"
_FILES_BETA = "files-api"


class BlockRule(msgspec.Struct, frozen=True):
    """The places that may contain a block, and its fields."""

    roles: frozenset[str]
    shape: ObjectShape


_USER = frozenset(("user",))
_ASSISTANT = frozenset(("assistant",))
_BOTH = _USER | _ASSISTANT
_SYSTEM = frozenset(("system",))
TOP_LEVEL = "top-level system"
_OWN: Mapping[str, Kind] = {
    "WORDS": text_like(r"(?s:.+)", Violation("", "text.empty", "text content blocks must be non-empty")),
    "SEALED": text_like(r"(?s:.+)", Violation("", "thinking.signature", "Invalid `data` in `redacted_thinking` block.")),
    "CALL": text_like(r"[a-zA-Z0-9_-]+", Violation("", "tool_use.id", "String should match pattern '^[a-zA-Z0-9_-]+$'")),
    "CALLED": text_like(r"(?s:.+)", Violation("", "tool_use.name", "String should have at least 1 character")),
    "HOSTED": text_like(
        r"srvtoolu_[a-zA-Z0-9_]+",
        Violation("", "server_tool_use.id", "String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"),
    ),
    "FILLED": limited(
        "str|list",
        lambda value: value != [],
        Violation("", "tool_result.empty", "content should be a string or hold at least one block"),
    ),
    "HOSTED_NAME": one_of(
        *("advisor", "web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution"),
        *("tool_search_tool_regex", "tool_search_tool_bm25"),
    ),
}


def _block(roles: frozenset[str], required: str = "", optional: str = "") -> BlockRule:
    """Return the rule of a block with the fields that every block may have: its type, and a cache mark (checked in `cache`)."""
    held = ObjectShape(
        read_kinds(f"type: str, {required}", _OWN), read_kinds(f"cache_control: object, {optional}", _OWN), open=False
    )
    return BlockRule(roles, held)


_RESULT = _block(_BOTH, "tool_use_id: str, content: object", "caller: object")
_ANYTHING = shape("type: str", open=True)
BLOCKS: Mapping[str, BlockRule] = {
    "text": _block(_BOTH | _SYSTEM | {TOP_LEVEL}, "text: WORDS", "citations: list"),
    "image": _block(_USER, "source: object", "transformations: object"),
    "document": _block(_BOTH, "source: object", "title context: str, citations: object"),
    "search_result": _block(_USER, "source title: str, content: list", "citations: object"),
    "container_upload": _block(_USER, "file_id: str"),
    "thinking": _block(_ASSISTANT, "thinking: str", "signature: str"),
    "redacted_thinking": _block(_ASSISTANT, "data: SEALED"),
    "tool_use": _block(_ASSISTANT, "id: CALL, name: CALLED, input: object", "caller: object, toolset_name: str"),
    "tool_result": _block(_USER, "tool_use_id: str", "content: FILLED, is_error: bool, toolset_name: str"),
    "server_tool_use": _block(_ASSISTANT, "id: HOSTED, name: HOSTED_NAME, input: object", "caller: object"),
    "web_search_tool_result": _block(_BOTH, "tool_use_id: str, content: object|list", "caller: object"),
    "web_fetch_tool_result": _RESULT,
    "code_execution_tool_result": _RESULT,
    "bash_code_execution_tool_result": _RESULT,
    "text_editor_code_execution_tool_result": _RESULT,
    "tool_search_tool_result": _RESULT,
    "advisor_tool_result": _RESULT,
    "mcp_tool_use": _block(_ASSISTANT, "id name server_name: str, input: object"),
    "mcp_tool_result": _block(_BOTH, "tool_use_id: str", "content: str|list, is_error: bool"),
    "mcp_tool_listing": _block(_BOTH, "mcp_server_name: str, tools: list"),
    "compaction": _block(_BOTH, "", "content encrypted_content signature: str, tool_changes: list"),
    "fallback": BlockRule(_BOTH, _ANYTHING),
    "tool_addition": _block(_SYSTEM, "tool: object"),
    "tool_removal": _block(_SYSTEM, "tool: object"),
}
_REFERENCES = {"tool_reference": _block(frozenset(), "tool_name: str"), "browser_state": BlockRule(frozenset(), _ANYTHING)}
_IN_TOOL_RESULT = {name: BLOCKS[name] for name in ("text", "image", "document", "search_result")} | _REFERENCES
_IN_DOCUMENT = {name: BLOCKS[name] for name in ("text", "image")}
_IN_SEARCH_RESULT = {"text": BLOCKS["text"]}


def _data(*media: str) -> ObjectShape:
    """Return the shape of a source that holds data of one of these types. Bytes are in base64; text is not."""
    said = f"Input should be one of {', '.join(sorted(media))}."
    typed = limited("str", frozenset(media).__contains__, Violation("", "source.media_type", said))
    bare = Violation("", "source.base64", "Invalid base64 data (bare base64, no data URL).")
    data = KINDS["str"] if "text/plain" in media else text_like(r"[A-Za-z0-9+/\s]+={0,2}\s*", bare)
    return shape("type: str, media_type: MEDIA, data: DATA", MEDIA=typed, DATA=data)


_ELSEWHERE = {"url": shape("type url: str"), "file": shape("type file_id: str")}
SOURCES: Mapping[str, Mapping[str, ObjectShape]] = {
    "image": {"base64": _data("image/jpeg", "image/png", "image/gif", "image/webp"), **_ELSEWHERE},
    "document": {
        "base64": _data("application/pdf"),
        "text": _data("text/plain"),
        "content": shape("type: str, content: str|list"),
        **_ELSEWHERE,
    },
}


def check_blocks(path: str, content: object, role: str, scope: Scope) -> Iterator[Violation]:
    """Report errors in each block of one content array, without its neighbours. `role` is a role or `TOP_LEVEL`."""
    for index, value in enumerate(items(content)):
        at = f"{path}.{index}"
        kind = text(fields(value).get("type"))
        known = BLOCKS.get(kind)
        if known is None:
            yield from _refuse_unknown(at, value)
        elif role not in known.roles or (role == "assistant" and _refuses_document(kind, scope)):
            yield Violation(at, "block.role", f"'{kind}' blocks are not permitted in {role} messages.")
        else:
            yield from _check_block(at, fields(value), known, scope)
            yield from _check_user_citations(at, value, role, scope)


def _refuses_document(kind: str, scope: Scope) -> bool:
    """True if the API refuses a document directly inside an assistant message: only the newer version does (section 0)."""
    return kind == "document" and scope.api_version == STRICT_VERSION


def _refuse_unknown(path: str, value: object) -> Iterator[Violation]:
    if isinstance(value, dict):
        kind = shown(text(fields(value).get("type")))
        yield Violation(path, "block.type", f"Input tag {kind} found using 'type' does not match any expected tag.")
    else:
        yield Violation(path, "type", "Input should be an object (a content block).")


def _check_block(path: str, block: Mapping[str, object], known: BlockRule, scope: Scope) -> Iterator[Violation]:
    yield from check_shape(path, block, known.shape)
    inspect = _INSPECTORS.get(text(block.get("type")))
    if inspect is not None:
        yield from inspect(path, block, scope)


def _check_nested(path: str, content: object, allowed: Mapping[str, BlockRule], scope: Scope) -> Iterator[Violation]:
    """Report errors in blocks inside a block. The tables nest at most three levels deep, so this ends for any input."""
    for index, value in enumerate(items(content)):
        known = allowed.get(text(fields(value).get("type")))
        if known is None:
            yield from _refuse_unknown(f"{path}.{index}", value)
        else:
            yield from _check_block(f"{path}.{index}", fields(value), known, scope)


def _check_user_citations(path: str, value: object, role: str, scope: Scope) -> Iterator[Violation]:
    """Report citations on user text, which the newer API version refuses (section 0)."""
    if role != "user" or scope.api_version != STRICT_VERSION:
        return
    block = fields(value)
    nested = items(block.get("content")) if block.get("type") == "search_result" else []
    if any(part.get("type") == "text" and items(part.get("citations")) for part in map(fields, [value, *nested])):
        yield Violation(path, "citations.user", "citations are not permitted on text in user messages")


def _check_source(path: str, block: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    source = fields(block.get("source"))
    at, kind, known = join(path, "source"), text(source.get("type")), SOURCES[text(block.get("type"))]
    if kind not in known or (kind == "file" and _refuses_files(scope)):
        allowed = ", ".join(f"'{name}'" for name in known)
        message = f"Input tag {shown(kind)} found using 'type' does not match any of the expected tags: {allowed}"
        yield Violation(at, "source.type", message)
        return
    yield from check_shape(at, source, known[kind])
    yield from _check_nested(join(at, "content"), source.get("content"), _IN_DOCUMENT, scope)


def _refuses_files(scope: Scope) -> bool:
    """True if a `file` source lacks the beta header that the older version requires.

    The recordings have one body with a 400 (sent without that header) and with a 200, so the body alone does not decide: the
    rule is applied only if the caller passes `betas`. Version 2026-10-21 needs no header.
    """
    if scope.betas is None or scope.api_version == STRICT_VERSION:
        return False
    return not any(beta.startswith(_FILES_BETA) for beta in scope.betas)


def _check_search_result(path: str, block: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    yield from _check_nested(join(path, "content"), block.get("content"), _IN_SEARCH_RESULT, scope)


def _check_tool_result(path: str, block: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Report errors in a result. By the API's own messages, an error must have content, and only text."""
    at, content = join(path, "content"), block.get("content")
    if block.get("is_error") is True and content in (None, "", []):
        yield Violation(at, "tool_result.error_empty", "content cannot be empty if `is_error` is true")
    if block.get("is_error") is True and any(fields(part).get("type") != "text" for part in items(content)):
        yield Violation(at, "tool_result.error_media", "all content must be type `text` if `is_error` is true")
    yield from _check_nested(at, content, _IN_TOOL_RESULT, scope)


def _check_thinking(path: str, block: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    signature = text(block.get("signature"))
    if not signature:
        yield Violation(join(path, "signature"), "thinking.signature", "Field required: a non-empty signature.")
    elif scope.issued is not None and scope.issued.get(signature) != block.get("thinking"):
        message = "Invalid `signature` in `thinking` block: altered signature or text."
        yield Violation(path, "thinking.altered", message)


_INSPECTORS: Mapping[str, Callable[[str, Mapping[str, object], Scope], Iterator[Violation]]] = {
    "image": _check_source,
    "document": _check_source,
    "search_result": _check_search_result,
    "thinking": _check_thinking,
    "tool_result": _check_tool_result,
}
