"""A key is kept out of a cassette wherever it stands."""

import asyncio
from pathlib import Path

import pytest

from evener import open_model
from evener.errors import UsageError
from evener.testing import FakeServer, open_cassette
from evener.transcript import Message, Transcript

KEY = "sk-very-secret-1234"


@pytest.mark.parametrize("words", ["C:\\keys\\" + KEY, "\\" + KEY])
def test_a_key_behind_a_backslash_is_not_stored(words: str, tmp_path: Path) -> None:
    async def record() -> None:
        async with FakeServer("anthropic_messages", ["Hi."]) as server:
            with open_cassette(tmp_path / "c.json", mode="record") as recorder:
                model = open_model("anthropic:claude-opus-4-5", key=KEY, base_url=server.url, environ={}, transport=recorder)
                await model.complete(model.ask(Transcript([Message.user_text(words)])))

    asyncio.run(record())
    assert KEY not in (tmp_path / "c.json").read_text()


def test_secrets_are_a_list(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        open_cassette(tmp_path / "c.json", mode="record", secrets=KEY)
