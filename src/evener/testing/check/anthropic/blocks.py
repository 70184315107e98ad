"""Content blocks of the Anthropic Messages wire: their fields, their roles, their sources. One block at a time.

Never looks at other blocks or turns (see anthropic_turns) and never at caching (see anthropic_cache). Unknown fields in a
block are refused by the API at every depth ("Extra inputs are not permitted"); the tables follow the sheet, section 4.
"""

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from evener.testing.check.scope import Scope
from evener.testing.check.shape import (
    BOOL,
    LIST,
    OBJECT,
    OBJECT_OR_LIST,
    STR,
    STR_OR_LIST,
    Kind,
    ObjectShape,
    check_shape,
    fields,
    items,
    join,
    one_of,
    shown,
    text,
)
from evener.testing.check.violation import Violation

STRICT_VERSION = "2026-10-21"
_FILES_BETA = "files-api"


class BlockRule(msgspec.Struct, frozen=True):
    """Where a block may stand and what it holds."""

    roles: frozenset[str]
    shape: ObjectShape


_USER = frozenset(("user",))
_ASSISTANT = frozenset(("assistant",))
_BOTH = _USER | _ASSISTANT
_SYSTEM = frozenset(("system",))
TOP_LEVEL = "top-level system"
_NAME = one_of(
    "advisor",
    "web_search",
    "web_fetch",
    "code_execution",
    "bash_code_execution",
    "text_editor_code_execution",
    "tool_search_tool_regex",
    "tool_search_tool_bm25",
)


def _block(roles: frozenset[str], required: Mapping[str, Kind], **optional: Kind) -> BlockRule:
    """Return a block with the fields every block may carry: its type, and a cache mark (judged in `cache`)."""
    return BlockRule(roles, ObjectShape({"type": STR, **required}, {"cache_control": OBJECT, **optional}))


def _hosted_result(content: Kind) -> BlockRule:
    return _block(_BOTH, {"tool_use_id": STR, "content": content}, caller=OBJECT)


BLOCKS: Mapping[str, BlockRule] = {
    "text": _block(_BOTH | _SYSTEM | {TOP_LEVEL}, {"text": STR}, citations=LIST),
    "image": _block(_USER, {"source": OBJECT}, transformations=OBJECT),
    "document": _block(_BOTH, {"source": OBJECT}, title=STR, context=STR, citations=OBJECT),
    "search_result": _block(_USER, {"source": STR, "title": STR, "content": LIST}, citations=OBJECT),
    "container_upload": _block(_USER, {"file_id": STR}),
    "thinking": _block(_ASSISTANT, {"thinking": STR}, signature=STR),
    "redacted_thinking": _block(_ASSISTANT, {"data": STR}),
    "tool_use": _block(_ASSISTANT, {"id": STR, "name": STR, "input": OBJECT}, caller=OBJECT, toolset_name=STR),
    "tool_result": _block(_USER, {"tool_use_id": STR}, content=STR_OR_LIST, is_error=BOOL, toolset_name=STR),
    "server_tool_use": _block(_ASSISTANT, {"id": STR, "name": _NAME, "input": OBJECT}, caller=OBJECT),
    "web_search_tool_result": _hosted_result(OBJECT_OR_LIST),
    "web_fetch_tool_result": _hosted_result(OBJECT),
    "code_execution_tool_result": _hosted_result(OBJECT),
    "bash_code_execution_tool_result": _hosted_result(OBJECT),
    "text_editor_code_execution_tool_result": _hosted_result(OBJECT),
    "tool_search_tool_result": _hosted_result(OBJECT),
    "advisor_tool_result": _hosted_result(OBJECT),
    "mcp_tool_use": _block(_ASSISTANT, {"id": STR, "name": STR, "server_name": STR, "input": OBJECT}),
    "mcp_tool_result": _block(_BOTH, {"tool_use_id": STR}, content=STR_OR_LIST, is_error=BOOL),
    "mcp_tool_listing": _block(_BOTH, {"mcp_server_name": STR, "tools": LIST}),
    "compaction": _block(_BOTH, {}, content=STR, encrypted_content=STR, signature=STR, tool_changes=LIST),
    "fallback": BlockRule(_BOTH, ObjectShape({"type": STR}, open=True)),
    "tool_addition": _block(_SYSTEM, {"tool": OBJECT}),
    "tool_removal": _block(_SYSTEM, {"tool": OBJECT}),
}
_REFERENCES = {
    "tool_reference": _block(frozenset(), {"tool_name": STR}),
    "browser_state": BlockRule(frozenset(), ObjectShape({"type": STR}, open=True)),
}
_IN_TOOL_RESULT = {name: BLOCKS[name] for name in ("text", "image", "document", "search_result")} | _REFERENCES
_IN_DOCUMENT = {name: BLOCKS[name] for name in ("text", "image")}
_IN_SEARCH_RESULT = {"text": BLOCKS["text"]}

_FILE = ObjectShape({"type": STR, "file_id": STR})
_URL = ObjectShape({"type": STR, "url": STR})
_DATA = {"type": STR, "media_type": STR, "data": STR}
SOURCES: Mapping[str, Mapping[str, ObjectShape]] = {
    "image": {"base64": ObjectShape(_DATA), "url": _URL, "file": _FILE},
    "document": {
        "base64": ObjectShape(_DATA),
        "text": ObjectShape(_DATA),
        "content": ObjectShape({"type": STR, "content": STR_OR_LIST}),
        "url": _URL,
        "file": _FILE,
    },
}
MEDIA_TYPES: Mapping[tuple[str, str], frozenset[str]] = {
    ("image", "base64"): frozenset(("image/jpeg", "image/png", "image/gif", "image/webp")),
    ("document", "base64"): frozenset(("application/pdf",)),
    ("document", "text"): frozenset(("text/plain",)),
}

_TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")


def check_blocks(path: str, content: object, role: str, scope: Scope) -> Iterator[Violation]:
    """Report what is wrong with each block of one content array, taken on its own. `role` is a role or `TOP_LEVEL`."""
    for index, value in enumerate(items(content)):
        at = f"{path}.{index}"
        kind = text(fields(value).get("type"))
        known = BLOCKS.get(kind)
        if known is None:
            yield from _unknown(at, value)
        elif role not in known.roles or (role == "assistant" and _document_refused(kind, scope)):
            yield Violation(at, "block.role", f"'{kind}' blocks are not permitted in {role} messages.")
        else:
            yield from _check_block(at, fields(value), known, scope)
            yield from _check_user_citations(at, value, role, scope)


def _document_refused(kind: str, scope: Scope) -> bool:
    """Section 0: a document directly inside an assistant message is refused by the newer API version only."""
    return kind == "document" and scope.api_version == STRICT_VERSION


def _unknown(path: str, value: object) -> Iterator[Violation]:
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
    """Blocks inside a block. The tables nest at most three deep, so this ends whatever the input is."""
    for index, value in enumerate(items(content)):
        known = allowed.get(text(fields(value).get("type")))
        if known is None:
            yield from _unknown(f"{path}.{index}", value)
        else:
            yield from _check_block(f"{path}.{index}", fields(value), known, scope)


def _check_text(path: str, block: Mapping[str, object], _scope: Scope) -> Iterator[Violation]:
    if block.get("text") == "":
        yield Violation(join(path, "text"), "text.empty", "text content blocks must be non-empty")


def _check_user_citations(path: str, value: object, role: str, scope: Scope) -> Iterator[Violation]:
    """Section 0: citations are what the model wrote; the newer API version refuses them on user text."""
    if role != "user" or scope.api_version != STRICT_VERSION:
        return
    block = fields(value)
    nested = items(block.get("content")) if block.get("type") == "search_result" else []
    if any(part.get("type") == "text" and items(part.get("citations")) for part in map(fields, [value, *nested])):
        yield Violation(path, "citations.user", "citations are not permitted on text in user messages")


def _check_source(path: str, block: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    source = fields(block.get("source"))
    at, owner, kind = join(path, "source"), text(block.get("type")), text(source.get("type"))
    shape = SOURCES[owner].get(kind)
    if shape is None or (kind == "file" and _files_refused(scope)):
        allowed = ", ".join(f"'{name}'" for name in SOURCES[owner])
        message = f"Input tag {shown(kind)} found using 'type' does not match any of the expected tags: {allowed}"
        yield Violation(at, "source.type", message)
        return
    yield from check_shape(at, source, shape)
    media = MEDIA_TYPES.get((owner, kind))
    if media is not None and isinstance(source.get("media_type"), str) and source["media_type"] not in media:
        expected = ", ".join(sorted(media))
        yield Violation(join(at, "media_type"), "source.media_type", f"Input should be one of {expected}.")
    if kind == "base64" and isinstance(source.get("data"), str) and not _BASE64.fullmatch(text(source["data"])):
        yield Violation(join(at, "data"), "source.base64", "Invalid base64 data (bare base64, no data URL).")
    yield from _check_nested(join(at, "content"), source.get("content"), _IN_DOCUMENT, scope)


def _files_refused(scope: Scope) -> bool:
    """True if a `file` source lacks the beta header that the older version wants.

    The recordings hold the very same body once with a 400 (sent without that header) and once with a 200, so the body
    alone decides nothing: only a caller who passes `betas` gets this rule. Version 2026-10-21 has it without a header.
    """
    if scope.betas is None or scope.api_version == STRICT_VERSION:
        return False
    return not any(beta.startswith(_FILES_BETA) for beta in scope.betas)


def _check_search_result(path: str, block: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    yield from _check_nested(join(path, "content"), block.get("content"), _IN_SEARCH_RESULT, scope)


def _check_tool_use(path: str, block: Mapping[str, object], _scope: Scope) -> Iterator[Violation]:
    call = block.get("id")
    if isinstance(call, str) and not _TOOL_ID.fullmatch(call):
        yield Violation(join(path, "id"), "tool_use.id", "String should match pattern '^[a-zA-Z0-9_-]+$'")
    if block.get("name") == "":
        yield Violation(join(path, "name"), "tool_use.name", "String should have at least 1 character")


def _check_server_tool_use(path: str, block: Mapping[str, object], _scope: Scope) -> Iterator[Violation]:
    call = block.get("id")
    if isinstance(call, str) and not _SERVER_ID.fullmatch(call):
        message = "String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"
        yield Violation(join(path, "id"), "server_tool_use.id", message)


def _check_tool_result(path: str, block: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    content = block.get("content")
    if isinstance(content, list) and not content:
        message = "content should be a string or hold at least one block"
        yield Violation(join(path, "content"), "tool_result.empty", message)
    if block.get("is_error") is True:
        yield from _check_error(join(path, "content"), content)
    yield from _check_nested(join(path, "content"), content, _IN_TOOL_RESULT, scope)


def _check_error(path: str, content: object) -> Iterator[Violation]:
    """Yield the API's words from the field: an error must say something, and only in words."""
    if content in (None, "", []):
        yield Violation(path, "tool_result.error_empty", "content cannot be empty if `is_error` is true")
    if any(fields(part).get("type") != "text" for part in items(content)):
        yield Violation(path, "tool_result.error_media", "all content must be type `text` if `is_error` is true")


def _check_thinking(path: str, block: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    signature = text(block.get("signature"))
    if not signature:
        yield Violation(join(path, "signature"), "thinking.signature", "Field required: a non-empty signature.")
    elif scope.issued is not None and scope.issued.get(signature) != block.get("thinking"):
        message = "Invalid `signature` in `thinking` block: altered signature or text."
        yield Violation(path, "thinking.altered", message)


def _check_redacted(path: str, block: Mapping[str, object], _scope: Scope) -> Iterator[Violation]:
    if block.get("data") == "":
        yield Violation(join(path, "data"), "thinking.signature", "Invalid `data` in `redacted_thinking` block.")


Inspector = Callable[[str, Mapping[str, object], Scope], Iterator[Violation]]
_INSPECTORS: Mapping[str, Inspector] = {
    "text": _check_text,
    "image": _check_source,
    "document": _check_source,
    "search_result": _check_search_result,
    "thinking": _check_thinking,
    "redacted_thinking": _check_redacted,
    "tool_use": _check_tool_use,
    "server_tool_use": _check_server_tool_use,
    "tool_result": _check_tool_result,
}
