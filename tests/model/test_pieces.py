"""A whole reply and its deltas are the same thing: so an answer that was not streamed takes the path of one that was."""

import json

import pytest

from evener.errors import BadValue, EvenerError
from evener.transcript.blocks import ImageBlock, Remote, ToolResult
from evener.transcript.reply import Reply, Stop
from evener.wire import CODECS, Quirks, assemble
from evener.wire.stream import deltas_of
from tests.corpus import Exchange, exchanges, needs_corpus

QUIRKS = Quirks()


def reply_of(exchange: Exchange) -> Reply | None:
    """The recorded answer, if it is one."""
    codec = CODECS[exchange.wire]
    try:
        if exchange.response is not None:
            return codec.decode(json.dumps(exchange.response).encode(), QUIRKS)
        decoder = codec.decoder(QUIRKS)
        return assemble([*decoder.feed(exchange.sse or b""), *decoder.close()])
    except EvenerError:
        return None


@needs_corpus
@pytest.mark.parametrize("wire", CODECS)
def test_the_deltas_of_every_recorded_reply_make_the_same_reply(wire: str) -> None:
    recorded = [one for one in exchanges(wire) if one.status == 200 and one.request and (one.response or one.sse)]
    replies = [(one.id, reply) for one in recorded if (reply := reply_of(one)) is not None]
    assert len(replies) >= 0.95 * len(recorded) > 0
    assert [name for name, reply in replies if assemble(deltas_of(reply)) != reply] == []


@pytest.mark.parametrize(
    "block", [ImageBlock(Remote("https://pictures.example/1.png")), ToolResult("c1")], ids=["url", "result"]
)
def test_a_block_that_no_model_makes_is_refused(block: ImageBlock | ToolResult) -> None:
    with pytest.raises(BadValue, match="cannot hold"):
        list(deltas_of(Reply((block,), Stop("done"))))
