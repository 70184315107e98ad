"""A streamed answer has a bound, too: what is kept of it must not grow for as long as the total deadline lasts."""

import json

import pytest

from evener.errors import WireError
from evener.model import open_model
from evener.testing import FakeServer, Raw
from evener.transport.exchange import Caps
from tests.model.stage import MODELS, NOWHERE, WIRES, asking, fresh_key, run, watched


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_without_end_is_given_up(wire: str) -> None:
    event = (
        b"data: " + json.dumps({"type": "weather_report", "object": "weather_report", "text": "x" * 1000}).encode() + b"\n\n"
    )

    async def play(url: str) -> None:
        async with watched() as watch:
            model = open_model(
                MODELS[wire], environ=NOWHERE, transport=watch, key=fresh_key(), base_url=url, caps=Caps(stream=1_000_000)
            )
            with pytest.raises(WireError, match="larger than 1000000 bytes"):
                await model.complete(asking(model))

    with FakeServer(wire, [Raw(event * 3000, content_type="text/event-stream")]) as server:
        run(play(server.url))
