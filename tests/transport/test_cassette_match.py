"""A player knows a request again by what it means, and a miss says what was otherwise."""

import asyncio
from pathlib import Path

import pytest

from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transport.cassette.recorder import CassetteMiss, Player, Recorder
from evener.transport.exchange import Request
from tests.transport.cassette_steps import SECRET, ask, recorded, told

SAME = {
    "whitespace": (b'{"a":1,"b":[2]}', b' { "a": 1,\n"b": [ 2 ] }'),
    "order of keys": (b'{"a":1,"b":2}', b'{"b":2,"a":1}'),
    "escapes": (b'{"a":"\\u00fc\\/"}', b'{"a":"\xc3\xbc/"}'),
    "an empty body": (b"", b""),
    "bytes": (b"\x00\xff", b"\x00\xff"),
    "keys that stand twice": (b'{"a":1,"a":2}', b'{"a":1,"a":2}'),
}


@pytest.mark.parametrize("case", SAME)
def test_bodies_that_mean_the_same_are_the_same(case: str, tmp_path: Path) -> None:
    one, other = SAME[case]
    path = recorded(tmp_path / "one.cassette", (ask(one), FakeAnswer((b"a",))))
    assert asyncio.run(told(Player(path), ask(other))) == [[b"a"]]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/v1/messages",
        "http://127.0.0.1:9/v1/messages?key=another-credential",
        "http://user:password@127.0.0.1:9/v1/messages#top",
    ],
)
def test_host_and_credentials_are_not_normalize(url: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "one.cassette", (ask(1), FakeAnswer((b"a",))))
    assert asyncio.run(told(Player(path), ask(1, url))) == [[b"a"]]


def test_another_key_plays_too_even_if_it_is_a_word_of_the_prompt(tmp_path: Path) -> None:
    path = recorded(tmp_path / "one.cassette", (ask({"text": "say placeholder"}), FakeAnswer((b"a",))))
    request = Request("/v1/messages", (("x-api-key", "placeholder"),), b'{"text": "say placeholder"}')
    assert asyncio.run(told(Player(path), request)) == [[b"a"]]


def test_a_body_that_holds_a_given_secret_plays_with_the_same_secret(tmp_path: Path) -> None:
    path = tmp_path / "one.cassette"
    with Recorder(FakeTransport([FakeAnswer((b"a",))]), path, secrets=["Jane"]) as recorder:
        asyncio.run(told(recorder, ask({"name": "Jane"})))
    assert asyncio.run(told(Player(path, secrets=["Jane"]), ask({"name": "Jane"}))) == [[b"a"]]
    with pytest.raises(CassetteMiss, match=r"name: recorded '\[secret\]', sent 'Jim'"):
        asyncio.run(told(Player(path, secrets=["Jane"]), ask({"name": "Jim"})))


HELLO = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}], "n": 1}
MISSES: dict[str, tuple[object, object, tuple[str, ...]]] = {
    "a text": (
        HELLO,
        HELLO | {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hullo"}]}]},
        ("messages[0].content[0].text: recorded 'Hello', sent 'Hullo'",),
    ),
    "more": ({"a": 1}, {"a": 1, "b": {"c": None}}, ('b: not recorded, sent {"c":null}',)),
    "less": ({"a": [1, "x"]}, {"a": [1]}, ("a[1]: recorded 'x', not sent",)),
    "a kind": ({"a": 1, "b": "1"}, {"a": True, "b": 1}, ("a: recorded 1, sent true", "b: recorded '1', sent 1")),
    "a number": ({"a": 1.0}, {"a": 1}, ("a: recorded 1.0, sent 1",)),
    "the root": ([1], {"a": 1}, ('body: recorded [1], sent {"a":1}',)),
    "no JSON": (b"abc", b"abd", ("body: recorded 'abc', sent 'abd'",)),
    "bytes": (b"\xff\x00", b"\xff", (r"body: recorded '\\xff\x00', sent '\\xff'",)),
    "far within": (
        {"a": "x" * 500 + "old" + "y" * 500},
        {"a": "x" * 500 + "new" + "y" * 500},
        (f"a: recorded '...{'x' * 20}old{'y' * 37}...', sent '...{'x' * 20}new{'y' * 37}...'",),
    ),
    "a long value": ({}, {"a": list(range(100))}, ("a: not recorded, sent [0,1,2,3,", "...")),
    "many": ({str(n): 0 for n in range(20)}, {str(n): 1 for n in range(20)}, ("7: recorded 0, sent 1", "... and 12 more")),
    "very many": ([0] * 999, [1] * 999, ("... and at least 92 more",)),
    "the key": ({"a": 1}, {"a": f"my {SECRET}"}, ("a: recorded 1, sent 'my [secret]'",)),
    "a line in a key": ({}, {"a\nb": 1}, (r"a\nb: not recorded, sent 1",)),
}


@pytest.mark.parametrize("case", MISSES)
def test_a_miss_shows_what_differs(case: str, tmp_path: Path) -> None:
    before, now, lines = MISSES[case]
    path = recorded(tmp_path / "one.cassette", (ask(before), FakeAnswer()))
    with pytest.raises(CassetteMiss) as miss:
        asyncio.run(told(Player(path), ask(now)))
    text = str(miss.value)
    for line in lines:
        assert line in text
    assert "no answer left for POST /v1/messages. The nearest is exchange 1 (POST /v1/messages):\n  " in text
    assert "sentinel" not in text
    assert len(text) < 2000


def test_a_miss_of_another_target_names_both(tmp_path: Path) -> None:
    path = recorded(tmp_path / "one.cassette", (ask(1, "/v1/messages?b=2&a=1"), FakeAnswer()))
    with pytest.raises(CassetteMiss) as miss:
        asyncio.run(told(Player(path), ask(1, "/v1/models?key=some-credential", method="GET")))
    lines = [line.strip() for line in str(miss.value).splitlines()]
    assert "method: recorded 'POST', sent 'GET'" in lines
    assert "url: recorded '/v1/messages?a=1&b=2', sent '/v1/models'" in lines


def test_the_nearest_is_the_one_that_comes_next(tmp_path: Path) -> None:
    turns = [{"messages": list(range(count))} for count in (1, 3, 5)]
    path = recorded(tmp_path / "one.cassette", *((ask(turn), FakeAnswer()) for turn in turns))
    player = Player(path)
    asyncio.run(told(player, ask(turns[0])))
    with pytest.raises(CassetteMiss, match=r"nearest is exchange 2 .*\n  messages\[1\]: recorded 1, sent 'x'\n"):
        asyncio.run(told(player, ask({"messages": [0, "x"]})))
    asyncio.run(told(player, *map(ask, turns[1:])))
    with pytest.raises(CassetteMiss, match=r"nearest is exchange 1 \(POST /v1/messages, already given\)"):
        asyncio.run(told(player, ask({"messages": [0, "x"]})))
