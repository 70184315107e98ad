"""Images that are larger than an endpoint takes: made smaller before they are sent, wherever they stand. (S3.28)"""

import asyncio
import base64
import sys
from io import BytesIO

import pytest
from PIL import Image

from evener.model.images import size_of
from evener.model.stream import fit_images
from evener.testing import FakeServer, Received, Turn, turn
from evener.transcript import Message, Transcript
from evener.transcript.blocks import ImageBlock, Inline, TextBlock, ToolCall, ToolResult
from evener.transport.http import HttpTransport
from evener.wire import Quirks
from tests.context.servers import MODELS, opened

LIMITS = Quirks(image_bytes=20_000, image_side=300)
KINDS = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


def picture(width: int, height: int, kind: str = "png", *, mode: str = "RGB") -> ImageBlock:
    """A picture with noise, so that it does not compress well."""
    image = Image.effect_noise((width, height), 80).convert(mode)
    out = BytesIO()
    image.save(out, kind)
    return ImageBlock(Inline(base64.b64encode(out.getvalue()).decode()), KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_every_kind_of_image_is_read_from_its_first_bytes(kind: str) -> None:
    block = picture(321, 45, kind)
    assert isinstance(block.source, Inline)
    assert size_of(block.source.data) == (321, 45)
    assert size_of("bm90IGFuIGltYWdl") == size_of("%%%") == size_of("") == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_what_is_too_large_is_made_smaller_and_reported(kind: str, mode: str) -> None:
    if (kind, mode) == ("jpeg", "RGBA"):
        return  # it has no transparency
    large = picture(900, 400, kind, mode=mode)
    small = picture(20, 20, kind, mode=mode)
    said = Message("user", (large, small))
    fitted = fit_images(Transcript([said]), LIMITS)
    first, second = fitted.transcript.messages[0].blocks
    assert second == small
    assert isinstance(first, ImageBlock)
    assert isinstance(first.source, Inline)
    width, height = size_of(first.source.data)
    assert max(width, height) <= 300
    assert abs(width / height - 900 / 400) < 0.1
    assert len(base64.b64decode(first.source.data)) <= 20_000
    assert [(loss.kind, loss.what) for loss in fitted.losses] == [("degraded", "image")]
    assert fit_images(Transcript([said]), LIMITS).transcript.messages == fitted.transcript.messages  # the same bytes again


def test_a_conversation_that_grows_is_fitted_from_where_it_grew() -> None:
    call = ToolCall("c", "look", "{}")
    talk = Transcript([Message.user_text("Look."), Message("assistant", (call,))])
    before = fit_images(talk, LIMITS)
    assert before.transcript is talk
    grown = talk.append(Message("user", (ToolResult("c", (TextBlock("seen"), picture(900, 400))),)))
    after = fit_images(grown, LIMITS, before)
    assert after.transcript.extends(talk.head)  # what was written before stays as it is
    more = grown.append(Message("assistant", (TextBlock("A lamp."),)))
    last = fit_images(more, LIMITS, after)
    assert last.transcript.extends(after.transcript.head)
    assert last.transcript.messages == fit_images(more, LIMITS).transcript.messages
    assert last.losses == after.losses


def test_without_pillow_or_if_it_cannot_be_read_a_line_stands_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ImageBlock(Inline(base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(30_000)).decode()), "image/png")
    fitted = fit_images(Transcript([Message("user", (broken,))]), LIMITS)
    [line] = fitted.transcript.messages[0].blocks
    assert isinstance(line, TextBlock)
    assert "image omitted: it has 30,0" in line.text
    assert [loss.kind for loss in fitted.losses] == ["dropped"]
    monkeypatch.setitem(sys.modules, "PIL", None)
    large = picture_bytes()
    assert isinstance(fit_images(Transcript([Message("user", (large,))]), LIMITS).transcript.messages[0].blocks[0], TextBlock)


def picture_bytes() -> ImageBlock:
    return ImageBlock(Inline(base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(30_001)).decode()), "image/png")


@pytest.mark.parametrize("wire", ["anthropic_messages"])
def test_a_server_gets_an_image_within_the_limits_of_its_row(wire: str) -> None:
    """S3.28. The row of Anthropic: 8,000 pixels a side. The request is legal, and the caller is told."""
    seen: list[str] = []

    def script(received: Received) -> Turn:
        [message] = received.json["messages"]
        seen.extend(block["source"]["data"] for block in message["content"] if block["type"] == "image")
        return turn("A line.")

    async def go() -> None:
        with FakeServer(wire, script) as server:
            async with HttpTransport() as transport:
                model = opened(server, MODELS[wire], transport)
                wide = picture(9_000, 4)
                answer = await model.complete(model.ask(Transcript([Message("user", (wide, TextBlock("What is it?")))])))
                assert [loss.what for loss in answer.losses] == ["image"]

    asyncio.run(go())
    assert [max(size_of(data)) for data in seen] == [8_000]
