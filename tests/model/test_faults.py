"""Whatever goes wrong in a model call, it ends, as a typed error or in the whole answer, and leaves nothing behind.

Issue 4, "What it must show", line 2.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from evener.errors import EvenerError, TruncatedStream, UsageError, WireError
from evener.model import Model, Stream, open_model
from evener.testing import FakeServer, Raw, Status, Turn, faults
from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transcript.delta import TextDelta
from evener.transport.exchange import Deadlines, Request
from evener.transport.limiter import Rate
from tests.model.fault_table import CUT, GENERAL, NEVER, OK, OWN, PATIENT, SAID, Fault, said
from tests.model.places import PLACES
from tests.model.stage import MODELS, MODES, NOWHERE, WIRES, Watched, asking, fresh_key, nothing_left, run, told_by, watched
from tests.patience import at_some_pace, takes_at_least
from tests.wire.test_eventstream import EVENTS, chunk

FIRST = "anthropic_messages"


def rows() -> Iterator[Any]:
    """All of the table on one wire; on the others their own, and of the rest what does not take a deadline."""
    for wire in WIRES:
        for fault in (*GENERAL, *OWN[wire]):
            for mode in MODES:
                brief = fault in GENERAL and wire != FIRST
                if fault.end(mode) == NEVER or (brief and (fault.slow or mode == "whole" or fault.place or _of_first(fault))):
                    continue
                yield pytest.param(wire, fault, mode, id=f"{wire}-{fault.name}-{mode}")


def _of_first(fault: Fault) -> bool:
    """Rows whose error the first wire words in its own way, or whose size makes them slow."""
    return fault.name in ("404 of a model", "503", "503 beyond the end", "529", "a huge event", "a bomb")


def test_the_table_is_long_enough_and_its_rows_differ() -> None:
    names = [fault.name for fault in (*GENERAL, *OWN[FIRST])]
    assert len(names) >= 30
    assert len(set(names)) == len(names)
    assert all(len(OWN[wire]) >= 8 for wire in WIRES)


@pytest.mark.parametrize(("wire", "fault", "mode"), list(rows()))
def test_a_fault_ends_in_a_typed_error_or_the_whole_answer(wire: str, fault: Fault, mode: str) -> None:
    def attempt(pace: float) -> None:
        key, slower = fresh_key(), fault.at_pace(pace)
        with nothing_left(), served(wire, slower, key) as (url, server):
            run(play(wire, slower, mode, key=key, url=url, server=server))

    if fault.slow:
        at_some_pace(attempt)  # the request must reach the server before the deadline that is to pass
    else:
        attempt(1.0)


@contextmanager
def served(wire: str, fault: Fault, key: str) -> Iterator[tuple[str, FakeServer | None]]:
    if fault.place:
        with PLACES[fault.place]() as url:
            yield url, None
    else:
        with FakeServer(wire, [_with_key(entry, key) for entry in fault.script], key=key) as server:
            yield server.url, server


def _with_key(entry: Any, key: str) -> Any:
    """A server may repeat the key that it was sent."""
    if isinstance(entry, Status):
        return replace(entry, message=entry.message.replace("{key}", key))
    if isinstance(entry, Raw):
        return replace(entry, body=entry.body.replace(b"{key}", key.encode()))
    if isinstance(entry, Turn):
        return replace(entry, faults=tuple(_with_key(fault, key) for fault in entry.faults))
    return replace(entry, message=entry.message.replace("{key}", key)) if isinstance(entry, faults.ErrorEvent) else entry


async def play(wire: str, fault: Fault, mode: str, *, key: str, url: str, server: FakeServer | None) -> None:
    """One call into the fault, and one after it: with one call at a time allowed, that shows that its turn was given back."""
    async with watched() as watch:

        def opened(deadlines: Deadlines) -> Model:
            return open_model(
                MODELS[wire],
                environ=NOWHERE,
                transport=watch,
                key=key,
                base_url=url,
                deadlines=deadlines,
                retries=fault.retries,
                caps=fault.caps,
                rate=Rate(concurrent=1),
            )

        with takes_at_least(fault.seconds):
            await ask_once(opened(fault.deadlines), fault, mode, key)
        assert (watch.sent, watch.open) == (fault.tries, 0)
        if server is not None:
            await ask_afterwards(opened(PATIENT), fault, mode, watch=watch, server=server)


async def ask_once(model: Model, fault: Fault, mode: str, key: str) -> None:
    stream = model.stream(asking(model, streamed=MODES[mode]), keep_raw=True)
    error = await failure_of(stream)
    if error is None:
        assert fault.end(mode) == OK, "it was taken for an answer"
        assert stream.answer.text == stream.answer.message.text == SAID
        assert stream.answer.reply.stop.reason == "done"
        assert stream.answer.tries == fault.tries
        return
    assert type(error) in ((WireError, TruncatedStream) if fault.end(mode) == CUT else (fault.end(mode),)), told_by(error)
    assert key[:-4] not in told_by(error)
    assert fault.says in str(error)
    assert {name: getattr(error, name) for name in fault.told} == fault.told
    assert await stream.read() == []
    with pytest.raises(UsageError, match="no answer yet"):
        assert stream.answer


async def failure_of(stream: Stream) -> EvenerError | None:
    """What the call ended in; None when it ended well."""
    try:
        while await stream.read():
            pass
    except EvenerError as error:
        return error
    return None


async def ask_afterwards(model: Model, fault: Fault, mode: str, *, watch: Watched, server: FakeServer) -> None:
    """Whatever happened, the next call is answered."""
    assert len(server.requests) == fault.tries
    assert server.rejected == []
    unplayed = server.left
    server.add("Fine.")
    for _ in range(unplayed):  # an entry that the fault did not get to answers first
        assert (await model.complete(asking(model, streamed=MODES[mode]))).text == SAID
    assert (await model.complete(asking(model, streamed=MODES[mode]))).text == "Fine."
    assert watch.open == 0


@pytest.mark.parametrize("end", ["cut", "damaged", "whole"])
def test_a_binary_event_stream_counts_only_when_it_is_whole_and_sound(end: str) -> None:
    body = b"".join(map(chunk, EVENTS))
    damaged = {"cut": body[: len(body) // 2], "damaged": body[:40] + b"\0\0" + body[42:], "whole": body}[end]
    answer = FakeAnswer((damaged[:100], damaged[100:]), headers={"content-type": "application/vnd.amazon.eventstream"})
    transport = FakeTransport([answer])
    environ = {"AWS_REGION": "eu-central-1"}
    model = open_model("bedrock:anthropic.claude-opus-5-5-v1:0", environ=environ, transport=transport, key=fresh_key())
    expected = {"cut": TruncatedStream, "damaged": WireError}.get(end)
    if expected is None:
        assert run(model.complete(asking(model))).reply.stop.reason == "done"
    else:
        with pytest.raises(expected):
            run(model.complete(asking(model)))
    transport.check()


def test_deltas_before_an_error_are_shown_however_the_bytes_were_cut() -> None:
    async def shown(size: int) -> tuple[str, str]:
        with FakeServer(FIRST, [said(faults.ErrorEvent(after=5), faults.Bytewise(size))]) as server:
            async with watched() as watch:
                model = open_model(MODELS[FIRST], environ=NOWHERE, transport=watch, key=fresh_key(), base_url=server.url)
                stream, seen = model.stream(asking(model)), ""
                try:
                    while deltas := await stream.read():
                        seen += "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
                except EvenerError as error:
                    return seen, type(error).__name__
        raise AssertionError("no error was raised")

    in_bytes, at_once = run(shown(1)), run(shown(1_000_000))
    assert in_bytes == at_once
    assert SAID.startswith(in_bytes[0])
    assert len(in_bytes[0]) > 8


MEASURED = """
import sys
from tests.model.stage import MODELS, NOWHERE, asking, fresh_key, run, watched
from evener.errors import WireError
from evener.model import open_model

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

async def main(wire, url, streamed):
    async with watched() as watch:
        model = open_model(MODELS[wire], environ=NOWHERE, transport=watch, key=fresh_key(), base_url=url)
        assert (await model.complete(asking(model, streamed=streamed))).text == "Small."
        before = peak()
        try:
            await model.complete(asking(model, streamed=streamed))
        except WireError as error:
            print(f'{{"kilobytes": {peak() - before}}}')

run(main(sys.argv[1], sys.argv[2], sys.argv[3] == "streamed"))
"""


@pytest.mark.parametrize(("mode", "packed"), [("streamed", False), ("whole", False), ("streamed", True)])
def test_a_frame_of_200_megabytes_costs_less_than_50(mode: str, packed: bool) -> None:
    spoilt = (faults.Huge(200_000_000), faults.Gzip()) if packed else (faults.Huge(200_000_000),)
    with FakeServer(FIRST, ["Small.", Turn(parts=(), faults=spoilt)]) as server:
        command = [sys.executable, "-c", MEASURED, FIRST, server.url, mode]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kilobytes"] < 50_000


def test_the_watch_notices_what_is_left_behind() -> None:
    """The checks above can fail: an answer that nobody closes, a secret in an error, a socket that stays open."""
    with pytest.raises(AssertionError, match="never closed"), FakeServer(FIRST, ["Hi."]) as server:
        run(leave_open(server.url))
    error = WireError("It broke.")
    error.__context__ = ValueError("sk-SENTINEL")
    assert "sk-SENTINEL" in told_by(error)
    kept = []
    with pytest.raises(AssertionError), nothing_left():
        kept.append(open("/dev/null"))  # noqa: SIM115 - left open on purpose
    kept.pop().close()


async def leave_open(url: str) -> None:
    async with watched() as watch:
        await watch.send(Request(f"{url}/v1/messages", (), b"{}"))
