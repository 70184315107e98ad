"""Media on their way to a model: from the blob store or a URL into the request, each of them read once."""

import base64
import hashlib
from typing import Any

import pytest

from evener.errors import UsageError, WireError
from evener.model import open_model
from evener.model.media import Media
from evener.testing import FakeServer
from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transcript.blocks import DocumentBlock, ImageBlock, Inline, Remote, Stored, TextBlock, ToolCall, ToolResult
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from tests.model.stage import MODELS, NOWHERE, WIRES, fresh_key, run, watched

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
PDF = b"%PDF-1.4\n%%EOF\n"
URL = "https://pictures.example/one.png?size=1"


class Blobs:
    """A blob store that counts how often each blob was read."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.read: list[str] = []

    async def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.kept[digest] = content
        return digest

    async def get(self, digest: str) -> bytes:
        self.read.append(digest)
        return self.kept[digest]


def seen(*blocks: Any) -> Message:
    return Message("user", (TextBlock("Look:"), *blocks))


def sources(transcript: Transcript) -> list[str]:
    """What kind of source each medium has, those in tool results included."""
    found = []
    for message in transcript:
        for block in message.blocks:
            parts = block.content if isinstance(block, ToolResult) else (block,)
            found += [type(part.source).__name__ for part in parts if isinstance(part, ImageBlock | DocumentBlock)]
    return found


def test_what_is_stored_is_put_in_once_while_the_conversation_grows() -> None:
    async def play() -> None:
        blobs = Blobs()
        media = Media(blobs.put, blobs.get)
        one, two = await blobs.put(PNG), await blobs.put(PDF)
        transcript = Transcript([Message.user_text("Hi."), Message.assistant_text("Hello.")], "Be brief.")
        assert await media.inline(transcript, {}, remote=False) is transcript

        transcript = transcript.append(seen(ImageBlock(Stored(one), "image/png")))
        made = await media.inline(transcript, {}, remote=False)
        assert (sources(made), sources(transcript), blobs.read) == (["Inline"], ["Stored"], [one])
        assert made.system == "Be brief."
        assert [message.id for message in made] == [message.id for message in transcript]

        for number in range(10):
            transcript = transcript.append(Message.assistant_text(f"Step {number}"))
            before, made = made, await media.inline(transcript, {}, remote=False)
            assert made.extends(before.head)
        assert blobs.read == [one]

        call, result = ToolCall("c1", "shoot"), ToolResult("c1", (DocumentBlock(Stored(two), "application/pdf"),))
        transcript = transcript.append(Message("assistant", (call,))).append(Message("user", (result,)))
        made = await media.inline(transcript, {}, remote=False)
        assert (sources(made), blobs.read) == (["Inline", "Inline"], [one, two])
        assert len(made) == len(transcript)

        fork = Transcript(transcript.messages[:3], "Other.")
        made = await media.inline(fork, {}, remote=False)
        assert (sources(made), made.system, blobs.read) == (["Inline"], "Other.", [one, two, one])

    run(play())


@pytest.mark.parametrize("remote", [False, True])
def test_what_is_behind_a_url_is_fetched_where_the_model_cannot(remote: bool) -> None:
    async def play() -> None:
        blobs = Blobs()
        transport = FakeTransport([FakeAnswer((PNG[:20], PNG[20:]), headers={"Content-Type": "image/png; charset=binary"})])
        media = Media(blobs.put, blobs.get, transport)
        digest, kind, size = await media.fetch(URL)
        assert (kind, size, blobs.kept[digest]) == ("image/png", len(PNG), PNG)
        transcript = Transcript([seen(ImageBlock(Remote(URL), "image/png"))])
        made = await media.inline(transcript, {URL: digest}, remote=remote)
        assert sources(made) == (["Inline"] if remote else ["Remote"])
        again = await media.inline(transcript, {URL: digest}, remote=not remote)
        assert sources(again) == (["Remote"] if remote else ["Inline"])
        transport.check()

    run(play())


def test_a_fetch_that_gives_no_file_says_so_and_shows_no_query() -> None:
    async def play() -> None:
        blobs = Blobs()
        transport = FakeTransport([FakeAnswer((b"gone",), 404), FakeAnswer((b"",), 302, {"location": "http://127.0.0.1/"})])
        media = Media(blobs.put, blobs.get, transport)
        for status in ("404", "302"):
            with pytest.raises(WireError, match=status) as caught:
                await media.fetch(URL)
            assert "size=1" not in str(caught.value)
        for url in ("file:///etc/passwd", "ftp://pictures.example/one.png", "/etc/passwd"):
            with pytest.raises(UsageError, match="only http"):
                await media.fetch(url)
        with pytest.raises(UsageError, match="only http"):
            await Media(blobs.put, blobs.get).fetch(URL)
        transport.check()
        assert blobs.kept == {}

    run(play())


@pytest.mark.parametrize("wire", WIRES)
def test_a_stored_picture_reaches_the_model(wire: str) -> None:
    async def play(url: str) -> str:
        blobs = Blobs()
        media = Media(blobs.put, blobs.get)
        transcript = Transcript([seen(ImageBlock(Stored(await blobs.put(PNG)), "image/png"))])
        async with watched() as watch:
            model = open_model(MODELS[wire], environ=NOWHERE, transport=watch, key=fresh_key(), base_url=url)
            ask = model.ask(await media.inline(transcript, {}, remote=model.fetches))
            answer = await model.complete(ask)
            assert answer.losses == ()
            return answer.text

    with FakeServer(wire, ["A dot."]) as server:
        assert run(play(server.url)) == "A dot."
        assert server.rejected == []
        assert base64.b64encode(PNG)[:60] in server.requests[0].body


def test_the_inline_form_is_base64() -> None:
    async def play() -> Inline:
        blobs = Blobs()
        made = await Media(blobs.put, blobs.get).inline(
            Transcript([seen(ImageBlock(Stored(await blobs.put(PNG)), "image/png"))]), {}, remote=False
        )
        (_, picture) = made.messages[0].blocks
        assert isinstance(picture, ImageBlock)
        assert isinstance(picture.source, Inline)
        return picture.source

    assert base64.b64decode(run(play()).data) == PNG
