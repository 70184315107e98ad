"""The wires that are proven on recorded traffic: one line each. A new wire needs readers in `expect.py` and a line here."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from evener.providers import Rows, load_rows
from evener.transcript import Ask, Origin
from evener.wire import CODECS, Codec, Quirks
from tests.corpus import Exchange, exchanges
from tests.wire import expect, normal
from tests.wire.expect import Answer, Json, Piece


@dataclass(frozen=True)
class Wire:
    """One wire: how to read its recordings, and the row that stands for each provider in them."""

    name: str
    whole: Callable[[Json], Answer]
    streamed: Callable[[bytes], Answer]
    turns: Callable[[Json], list[list[Piece]]]
    normal: Callable[[Json], Json]
    rows: Mapping[str, str]

    @property
    def codec(self) -> Codec:
        return CODECS[self.name]

    def answers(self) -> list[Exchange]:
        """Every exchange that the provider answered."""
        return [one for one in exchanges(self.name) if one.status == 200]

    def streams(self) -> list[Exchange]:
        """Every answer that was streamed."""
        return [one for one in self.answers() if one.sse is not None]

    def errors(self) -> list[Exchange]:
        """Every exchange that the provider refused."""
        return [one for one in exchanges(self.name) if one.status != 200]

    def requests(self) -> list[Exchange]:
        """Every exchange with a request body."""
        return [one for one in exchanges(self.name) if one.request is not None]

    def target(self, exchange: Exchange) -> Origin:
        """Whom a request was for. Where the model is not in the body, it is in the path."""
        model = (exchange.request or {}).get("model") or exchange.path.split("/")[2]
        return Origin(self.name, self.rows[exchange.provider], model=model)

    def quirks(self, exchange: Exchange) -> Quirks:
        """What the rows say about the model that was asked."""
        target = self.target(exchange)
        return rows().quirks(target.provider, target.model)

    def plain(self, exchange: Exchange) -> Quirks:
        """The wire as it is, with only what changes where things stand in a request."""
        row = self.quirks(exchange)
        return Quirks(
            unique_ids=False,
            model_in_body=row.model_in_body,
            version_in_body=row.version_in_body,
            api_version=row.api_version,
        )

    def ask(self, exchange: Exchange) -> Ask:
        """The recorded request, read."""
        body = json.dumps(exchange.request).encode()
        return self.codec.read_request(body, self.quirks(exchange), self.target(exchange))


@cache
def rows() -> Rows:
    return load_rows()


WIRES = {
    wire.name: wire
    for wire in (
        Wire(
            "anthropic_messages",
            expect.anthropic_whole,
            expect.anthropic_streamed,
            expect.anthropic_turns,
            normal.anthropic,
            {"anthropic": "anthropic", "bedrock": "bedrock", "gateway": "anthropic"},
        ),
        Wire(
            "openai_responses",
            expect.responses_whole,
            expect.responses_streamed,
            expect.responses_turns,
            normal.responses,
            {
                "azure": "azure",
                "bedrock_mantle": "bedrock-mantle-openai",
                "deepseek": "deepseek-responses",
                "gateway": "openai",
                "openai": "openai",
                "openrouter": "openrouter-responses",
            },
        ),
    )
}
