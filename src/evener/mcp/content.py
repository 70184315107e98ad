"""The answers of a server as our values: text, images and documents as blocks, structured content as metadata."""

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from evener.errors import BadValue
from evener.tools.result import Envelope
from evener.transcript.blocks import DocumentBlock, ImageBlock, Inline, ResultContent, TextBlock

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
STRUCTURED = "structured"
"""The key of structured content in the metadata of a result."""
MOST_STRUCTURED = 1 << 20


def result_envelope(result: CallToolResult) -> Envelope:
    """Return the result of a call. Structured content is kept in the metadata, and shown if there are no blocks."""
    blocks = tuple(map(block_of, result.content))
    structured = result.structured_content
    meta: dict[str, object] = {}
    if structured is not None:
        text = msgspec.json.encode(structured).decode()
        if not blocks:
            blocks = (TextBlock(text),)
        if len(text) <= MOST_STRUCTURED:
            meta[STRUCTURED] = structured
    ok = not result.is_error
    return Envelope(ok, blocks, msgspec.json.encode(meta).decode(), outcome="done" if ok else "failed")


def block_of(block: ContentBlock) -> ResultContent:
    """Return a block of MCP content as one of ours. Content that a model cannot get becomes a line of text."""
    match block:
        case TextContent():
            return TextBlock(block.text)
        case ImageContent():
            return _media(block.data, block.mime_type, "an image")
        case AudioContent():
            return TextBlock(f"[audio of type {block.mime_type}, {len(block.data)} characters of base64, is not shown]")
        case ResourceLink():
            about = f": {block.description}" if block.description else ""
            return TextBlock(f"[resource {block.uri} ({block.name}){about}]")
        case EmbeddedResource():
            return resource_block(block.resource)


def resource_block(resource: TextResourceContents | BlobResourceContents) -> ResultContent:
    """Return the content of a resource."""
    if isinstance(resource, TextResourceContents):
        return TextBlock(resource.text)
    return _media(resource.blob, resource.mime_type or "", f"the resource {resource.uri}")


def _media(data: str, kind: str, what: str) -> ResultContent:
    try:
        if kind in IMAGES:
            return ImageBlock(Inline(data), kind)
        if kind == "application/pdf":
            return DocumentBlock(Inline(data), kind)
    except BadValue as error:
        return TextBlock(f"[{what} cannot be shown: {error}]")
    return TextBlock(f"[{what} of type {kind or 'unknown'} is not shown]")
