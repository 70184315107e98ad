"""Media of a request as bytes: fetches, checks and stores what is behind URLs, and inlines what is in the blob store."""

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from evener.errors import UsageError, WireError
from evener.transcript.blocks import Block, DocumentBlock, ImageBlock, Inline, Remote, Stored, ToolResult
from evener.transcript.message import Message
from evener.transcript.transcript import Node, Transcript, has_media_elsewhere
from evener.transport.exchange import Deadlines, Reach, Request, Transport
from evener.transport.http import read_all

MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"\0\0\1\0", "image/x-icon"),
    (0, b"\xff\x0a", "image/jxl"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypavis", "image/avif"),
    (4, b"ftyphei", "image/heic"),
    (4, b"ftyphev", "image/heic"),
    (4, b"ftypmif1", "image/heic"),
    (4, b"ftypmsf1", "image/heic"),
    (0, b"%PDF-", "application/pdf"),
)
SAME = {
    "image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png", "image/apng": "image/png",
    "image/heif": "image/heic", "image/heic-sequence": "image/heic", "image/vnd.microsoft.icon": "image/x-icon",
    "image/x-ms-bmp": "image/bmp", "application/x-pdf": "application/pdf",
}  # fmt: skip
UNSAID = frozenset({"", "application/octet-stream", "binary/octet-stream"})
"""What a server states that does not know the type: then the bytes decide."""
START = 1024


def sniff(content: bytes) -> str:
    """Return the media type that the bytes begin like; empty when that is not known."""
    for offset, magic, kind in MAGIC:
        if content.startswith(magic, offset):
            return kind
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    start = content[:START].lstrip(b"\xef\xbb\xbf \t\r\n")
    return "image/svg+xml" if start.startswith(b"<") and b"<svg" in start else ""


def check_media(block: ImageBlock | DocumentBlock, content: bytes, said: str, *, place: str) -> None:
    """Refuse content that is not of the block's kind. `said` is the content type that the server stated."""
    said, found = said.lower(), sniff(content)
    said = SAME.get(said, said)
    if isinstance(block, ImageBlock):
        is_right = found.startswith("image/") and said in (found, *UNSAID)
        wanted = "an image"
    else:
        wanted = SAME.get(block.media_type.lower(), block.media_type.lower())
        is_right = _is_document(wanted, said, found)
        wanted = wanted or "a document"
    if not is_right:
        raise WireError(
            f"{place} is not {wanted}: the server says {said or 'no type'}, and it begins like {found or 'no known type'}. "
            "It was not sent. Give the address of the file itself."
        )


def _is_document(wanted: str, said: str, found: str) -> bool:
    """True if no known fact contradicts the type that is asked for; without one, the server's word counts."""
    if not wanted:
        return said in UNSAID or found in ("", said)
    if "application/pdf" in (wanted, found):
        return wanted == found and said in (wanted, *UNSAID)
    major = wanted.partition("/")[0]
    if major in ("text", "audio", "video", "image"):
        return (said in UNSAID or said.startswith(f"{major}/")) and (not found or found.startswith(f"{major}/"))
    return said in (wanted, *UNSAID) and found in ("", wanted)


MOST = 20 * 1024 * 1024
DEADLINES = Deadlines(connect=10.0, idle=20.0, total=60.0)
FAR: dict[bool, tuple[type, ...]] = {True: (Stored, Remote), False: (Stored,)}

Put = Callable[[bytes], Awaitable[str]]
Get = Callable[[str], Awaitable[bytes]]


class Media(msgspec.Struct, eq=False):
    """Fetch, store and inline media. As long as the conversation only grows, each message is inlined once."""

    put: Put
    get: Get
    transport: Transport | None = None
    reach: Reach = "public"
    _seen: Node | None = None
    _made: Transcript | None = None
    _remote: bool = False

    async def fetch(self, url: str, *blocks: ImageBlock | DocumentBlock) -> tuple[str, str, int]:
        """Store what lies behind a URL, if it is what the blocks ask for; return digest, media type and size.

        Follows no redirect. Only addresses in the public internet are asked, unless the reach is "anywhere".
        """
        if self.transport is None or not url.startswith(("https://", "http://")):
            raise UsageError(f"The model cannot be given {url.partition('?')[0]!r}: only http(s) addresses are fetched.")
        response = await self.transport.send(Request(url, (("accept", "*/*"),), b"", "GET", DEADLINES, self.reach))
        try:
            if response.status != 200:
                raise WireError(f"{url.partition('?')[0]} answered {response.status}, not with a file. Give the file itself.")
            content = await read_all(response, MOST)
        finally:
            await response.aclose()
        media_type = response.headers.get("content-type", "").partition(";")[0].strip()
        for block in blocks:
            check_media(block, content, media_type, place=url.partition("?")[0])
        return await self.put(content), media_type, len(content)

    async def inline(self, transcript: Transcript, have: Mapping[str, str], *, remote: bool) -> Transcript:
        """Return the transcript with its media as bytes: those of the blob store, and with `remote` those behind URLs."""
        if self._made is None or remote != self._remote or not transcript.extends(self._seen):
            self._seen, self._made, self._remote = None, None, remote
            page = transcript.page
            if page is not None and page.media < 2:  # nothing to inline before it: those messages stay on disk
                self._seen, self._made = page, transcript.at(page)
        new = transcript.since(self._seen)
        made = self._made
        if has_media_elsewhere(new, FAR[remote]):
            base = made if made is not None else Transcript()
            made = base.extend([await self._inline_message(message, have, remote) for message in new])
        elif made is None or made.head is self._seen:
            made = transcript
        else:
            made = made.extend(new)
        self._seen, self._made = transcript.head, made
        return made if made is transcript else made.with_system(transcript.system_blocks)

    async def _inline_message(self, message: Message, have: Mapping[str, str], remote: bool) -> Message:
        if not has_media_elsewhere((message,), FAR[remote]):
            return message
        return replace(message, blocks=tuple([await self._inline_block(block, have) for block in message.blocks]))

    async def _inline_block(self, block: Block, have: Mapping[str, str]) -> Block:
        match block:
            case ImageBlock(source=Stored(digest)) | DocumentBlock(source=Stored(digest)):
                return replace(block, source=await self._read(digest))
            case ImageBlock(source=Remote(url)) | DocumentBlock(source=Remote(url)) if url in have:
                return replace(block, source=await self._read(have[url]))
            case ToolResult(content=content):
                return replace(block, content=tuple([await self._inline_block(part, have) for part in content]))
            case _:
                return block

    async def _read(self, digest: str) -> Inline:
        return Inline(base64.b64encode(await self.get(digest)).decode())


def find_blocks(messages: Iterable[Message], url: str) -> list[ImageBlock | DocumentBlock]:
    """Return the blocks whose media lie behind this URL."""
    found: list[ImageBlock | DocumentBlock] = []
    for message in messages:
        for block in message.blocks:
            for part in block.content if isinstance(block, ToolResult) else (block,):
                if isinstance(part, ImageBlock | DocumentBlock) and part.source == Remote(url):
                    found.append(part)
    return found
