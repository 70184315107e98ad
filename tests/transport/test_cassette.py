"""A cassette gives back what a real server sent: the same bytes in the same pieces, the same errors, no secret (issue 4)."""

import asyncio
import gzip
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evener.errors import ConnectFailed, TimedOut, TransportError, TruncatedStream, UsageError, WireError
from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transport.cassette.file import Breach
from evener.transport.cassette.recorder import CassetteMiss, Player, Recorder, open_cassette
from evener.transport.exchange import Request, Response, Transport
from evener.transport.http import HttpTransport
from tests.transport.cassette_steps import SECRET, arriving, ask, pieces_of, recorded, told
from tests.wire.test_eventstream import EVENTS, chunk

SECONDS = 120
SSE = b"".join(b"event: %s\ndata: %s\n\n" % (str(e["type"]).encode(), json.dumps(e).encode()) for e in EVENTS)
KINDS = {
    "sse": ("text/event-stream", SSE),
    "json": ("application/json", b'{"id": "m", "content": "gr\xc3\xbcn", "n": 1.0}'),
    "gzip": ("application/json", b'{"packed": true}' * 2000),
    "eventstream": ("application/vnd.amazon.eventstream", b"".join(map(chunk, EVENTS))),
}


@asynccontextmanager
async def server(hits: list[bytes]) -> AsyncIterator[str]:
    """A server on loopback whose answer is named by the path. It repeats the caller's secrets wherever it can."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        hits.append(head + await reader.readexactly(length))
        kind = head.split()[1].partition(b"?")[0].decode().rpartition("/")[2]
        content_type, body = KINDS[kind] if kind in KINDS else ("text/plain", b"you sent " + hits[-1])
        encoding = "content-encoding: gzip\r\n" if kind == "gzip" else ""
        writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{encoding}X-Request-Id: r-{SECRET}\r\n"
            f"Set-Cookie: session={SECRET}\r\nOpenAI-Organization: org-{SECRET}\r\nConnection: close\r\n\r\n".encode()
        )
        writer.write(gzip.compress(body) if kind == "gzip" else body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with asyncio.timeout(SECONDS), await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_real_server_sent_is_replayed_in_the_same_pieces(kind: str, tmp_path: Path) -> None:
    path, hits = tmp_path / "one.cassette", list[bytes]()

    async def live() -> tuple[Request, list[bytes]]:
        async with server(hits) as url, HttpTransport(trust_env=False) as http:
            with Recorder(http, path) as recorder:
                request = ask({"stream": True}, f"{url}/v1/{kind}")
                return request, await pieces_of(await recorder.send(request))

    async def again(request: Request) -> tuple[Response, list[bytes]]:
        response = await Player(path).send(request)
        return response, await pieces_of(response)

    request, seen = asyncio.run(live())
    response, pieces = asyncio.run(again(request))
    assert (pieces, b"".join(pieces), len(hits)) == (seen, KINDS[kind][1], 1)
    assert (response.status, response.headers["content-type"]) == (200, KINDS[kind][0])
    assert "content-encoding" not in response.headers, "the bytes are not compressed any more"


def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    path, hits = tmp_path / "one.cassette", list[bytes]()
    body = {"text": SECRET, "inner": json.dumps({"key": SECRET}), "given": 'a "quoted" one', "authorization": "tool-credential"}

    async def live() -> None:
        async with server(hits) as url, HttpTransport(trust_env=False) as http:
            with open_cassette(path, mode="record", inner=http, secrets=['a "quoted" one']) as recorder:
                await told(recorder, ask(body, f"{url}/v1/echo?key=query-credential&alt=sse"), ask(body, f"{url}/{SECRET}/sse"))

    asyncio.run(live())
    text = path.read_text(encoding="utf-8")
    assert SECRET.encode() in hits[0]
    for word in ("sentinel", "quoted", "query-credential", "tool-credential", "cookie", "organization", "bearer"):
        assert word not in text.lower().replace("\\", ""), word
    assert "?key=[secret]&alt=sse" in text


def test_the_file_is_for_its_owner_only_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = recorded(tmp_path / "one.cassette", (ask(1), FakeAnswer((b"a",))))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_recording_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    path = recorded(tmp_path / "one.cassette", (ask(1), FakeAnswer((b"old",))))
    before = path.read_bytes()
    recorder = Recorder(FakeTransport([FakeAnswer((b"new",))]), path)
    asyncio.run(told(recorder, ask(1)))
    with pytest.raises(ZeroDivisionError), recorder:
        raise ZeroDivisionError
    recorder.close()
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])


def test_nothing_sent_is_nothing_written(tmp_path: Path) -> None:
    Recorder(FakeTransport(), tmp_path / "one.cassette").close()
    assert list(tmp_path.iterdir()) == []


def test_the_same_exchanges_give_the_same_file(tmp_path: Path) -> None:
    one, other = (recorded(tmp_path / name, (ask({"a": 1}), FakeAnswer((b"x", b"y")))) for name in "ab")
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("kind", [TransportError, ConnectFailed, TimedOut, TruncatedStream, WireError])
@pytest.mark.parametrize("before", [None, (), (b"a", b"b")], ids=["head", "first", "third"])
def test_an_answer_that_broke_breaks_again(kind: type[Breach], before: tuple[bytes, ...] | None, tmp_path: Path) -> None:
    error = kind(f"The key {SECRET} was no use.")
    inner = FakeTransport([error if before is None else FakeAnswer((*before, error))])

    async def heard(transport: Transport) -> tuple[list[bytes], Breach]:
        got: list[bytes] = []
        try:
            response = await transport.send(ask(1))
            async for piece in arriving(response):
                got.append(piece)
        except (TransportError, WireError) as broken:
            return got, broken
        raise AssertionError("it did not break")

    with Recorder(inner, tmp_path / "one.cassette") as recorder:
        seen, first = asyncio.run(heard(recorder))
    pieces, second = asyncio.run(heard(Player(tmp_path / "one.cassette")))
    assert (pieces, first) == (seen, error)
    assert (type(second), str(second)) == (kind, "The key [secret] was no use.")


def test_an_answer_that_was_left_early_can_be_read_just_as_far(tmp_path: Path) -> None:
    async def first(transport: Transport, count: int) -> list[bytes]:
        response = await transport.send(ask(1))
        pieces = [await response.read() for _ in range(count)]
        await response.aclose()
        return pieces

    with Recorder(FakeTransport([FakeAnswer((b"a", b"b", b"c"))]), tmp_path / "one.cassette") as recorder:
        asyncio.run(first(recorder, 2))
    assert asyncio.run(first(Player(tmp_path / "one.cassette"), 2)) == [b"a", b"b"]
    with pytest.raises(CassetteMiss, match="was closed before its end"):
        asyncio.run(first(Player(tmp_path / "one.cassette"), 3))


def test_a_replayed_answer_is_not_read_after_closing(tmp_path: Path) -> None:
    async def late(transport: Transport) -> bytes:
        response = await transport.send(ask(1))
        await response.aclose()
        return await response.read()

    with pytest.raises(UsageError, match=r"was closed\. Read it before"):
        asyncio.run(late(Player(recorded(tmp_path / "one.cassette", (ask(1), FakeAnswer((b"a",)))))))


def test_equal_requests_get_their_answers_in_order(tmp_path: Path) -> None:
    path = recorded(
        tmp_path / "one.cassette",
        (ask(1), FakeAnswer((b"first",))), (ask(2), FakeAnswer((b"other",))), (ask(1), FakeAnswer((b"second",))),
    )  # fmt: skip
    player = Player(path)
    assert asyncio.run(told(player, ask(1), ask(1), ask(2))) == [[b"first"], [b"second"], [b"other"]]
    with pytest.raises(CassetteMiss, match="recorded 2 times and requested once more"):
        asyncio.run(told(player, ask(1)))


def test_concurrent_exchanges_are_kept_in_the_order_of_sending(tmp_path: Path) -> None:
    path = tmp_path / "one.cassette"

    async def live() -> list[list[bytes]]:
        gates = [asyncio.Event() for _ in range(3)]
        answers = [FakeAnswer((b"%d" % number, gate, b"-end")) for number, gate in enumerate(gates)]
        with Recorder(FakeTransport(answers), path) as recorder:
            async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
                tasks = [group.create_task(told(recorder, ask("same"))) for _ in gates]
                for gate, task in reversed(list(zip(gates, tasks, strict=True))):
                    gate.set()
                    await task
        return [task.result()[0] for task in tasks]

    async def again() -> list[list[bytes]]:
        with Player(path) as player:
            return [pieces for (pieces,) in await asyncio.gather(*(told(player, ask("same")) for _ in range(3)))]

    assert asyncio.run(live()) == asyncio.run(again()) == [[b"0", b"-end"], [b"1", b"-end"], [b"2", b"-end"]]


def test_a_request_that_was_called_off_is_not_recorded(tmp_path: Path) -> None:
    async def live() -> None:
        with Recorder(FakeTransport([asyncio.Event(), FakeAnswer((b"late",))]), tmp_path / "one.cassette") as recorder:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await recorder.send(ask(1))
            await told(recorder, ask(2))
            recorder.close(strict=True)

    asyncio.run(live())
    assert Player(tmp_path / "one.cassette").unused == ("exchange 1: POST /v1/messages",)


def test_what_was_not_asked_for_is_told(tmp_path: Path) -> None:
    path = recorded(tmp_path / "one.cassette", *((ask(number), FakeAnswer()) for number in range(5)))
    player = Player(path)
    asyncio.run(told(player, ask(3)))
    assert player.unused == tuple(f"exchange {number}: POST /v1/messages" for number in (1, 2, 3, 5))
    with pytest.raises(UsageError, match=r"Of the 5 exchanges .*, 4 were never requested .*; \.\.\.\)"):
        player.close(strict=True)
    asyncio.run(told(complete := Player(path), *map(ask, range(5))))
    complete.close(strict=True)


def test_a_strict_recorder_wants_every_answer_closed(tmp_path: Path) -> None:
    recorder = Recorder(FakeTransport([FakeAnswer((b"a",))]), tmp_path / "one.cassette")
    response = asyncio.run(recorder.send(ask(1)))
    with pytest.raises(UsageError, match="An answer is still open"):
        recorder.close(strict=True)
    asyncio.run(pieces_of(response))
    recorder.close(strict=True)
    assert asyncio.run(told(Player(tmp_path / "one.cassette"), ask(1))) == [[b"a"]]


def test_nothing_is_sent_after_closing(tmp_path: Path) -> None:
    recorder = Recorder(FakeTransport([FakeAnswer()]), tmp_path / "one.cassette")
    player = Player(recorded(tmp_path / "two.cassette", (ask(1), FakeAnswer())))
    for cassette in (recorder, player):
        cassette.close()
        with pytest.raises(UsageError, match="was closed"):
            asyncio.run(told(cassette, ask(1)))


def test_auto_records_once_and_then_replays(tmp_path: Path) -> None:
    inner = FakeTransport([FakeAnswer((b"a",))])
    for _ in range(3):
        with open_cassette(tmp_path / "one.cassette", inner=inner) as cassette:
            assert asyncio.run(told(cassette, ask(1))) == [[b"a"]]
    inner.check()


def test_a_cassette_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no cassette .*Record it"):
        open_cassette(tmp_path / "one.cassette", mode="replay")
    with pytest.raises(UsageError, match=r"There is no folder .*Create it first"):
        open_cassette(tmp_path / "none" / "one.cassette", inner=FakeTransport())
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        Player(tmp_path)


def test_a_folder_that_went_away_is_told_when_it_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    recorder = Recorder(FakeTransport([FakeAnswer()]), folder / "one.cassette")
    asyncio.run(told(recorder, ask(1)))
    folder.rmdir()
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        recorder.close()
