"""What fetched bytes are, by what the server says and by how they begin; and whether that is what a block asks for. Pure."""

from evener.errors import WireError
from evener.transcript.blocks import DocumentBlock, ImageBlock

__all__ = ["check_media", "sniffed"]

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
"""What a server says that does not know: then the bytes decide."""
START = 1024


def sniffed(content: bytes) -> str:
    """The media type that the bytes begin like; empty when that is not known."""
    for offset, magic, kind in MAGIC:
        if content.startswith(magic, offset):
            return kind
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    start = content[:START].lstrip(b"\xef\xbb\xbf \t\r\n")
    return "image/svg+xml" if start.startswith(b"<") and b"<svg" in start else ""


def check_media(block: ImageBlock | DocumentBlock, content: bytes, said: str, *, place: str) -> None:
    """Refuse what is not of the kind that the block asks for. `said` is the content type that the server gave."""
    said, found = said.lower(), sniffed(content)
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
            f"{place} is not {wanted}: the server says {said or 'nothing of its type'}, and it begins like {found or 'none'}."
            " Nothing of it was sent. Give the address of the file itself."
        )


def _is_document(wanted: str, said: str, found: str) -> bool:
    """True if nothing that is known contradicts the type that is asked for; without one, the server's word."""
    if not wanted:
        return said in UNSAID or found in ("", said)
    if "application/pdf" in (wanted, found):
        return wanted == found and said in (wanted, *UNSAID)
    major = wanted.partition("/")[0]
    if major in ("text", "audio", "video", "image"):
        return (said in UNSAID or said.startswith(f"{major}/")) and (not found or found.startswith(f"{major}/"))
    return said in (wanted, *UNSAID) and found in ("", wanted)
