"""The bench of whole agents runs: the server, our own side, peers that are there or are named. Figures mean nothing here."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import agents
from bench.agent_speech import ID, TOOL, WIRES, answer, events
from bench.peers import Missing, Peer
from bench.table import Figure, printed
from evener.wire import CODECS
from evener.wire.quirks import Quirks
from evener.wire.stream import assemble

SMALL = agents.Scale(4, 2, (2, 3), (20, 200), 1, 1)


@pytest.fixture(scope="module")
def found() -> Sequence[Figure]:
    """One small run without any peer."""
    return agents.figures(SMALL, {})


def test_every_figure_of_ours_is_measured(found: Sequence[Figure]) -> None:
    assert [figure.note for figure in found if not figure.measured] == []
    named = printed(found, "other")
    for what in (*(f"burst delta, {wire}" for wire in WIRES), *(f"request, {wire}" for wire in WIRES), "growth", "SQLite"):
        assert what in named


def test_a_peer_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(peer: Peer) -> Path:
        raise Missing(f"no {peer.package} here")

    monkeypatch.setattr(agents, "environment", refuse)
    pythons, missing = agents._environments({"thinharness": Peer("", "thinharness", "0.8.0")})
    assert pythons == {}
    assert [figure.verdict for figure in missing] == ["none"]
    assert "not measured: no thinharness here" in printed(missing, "other")


def test_who_did_not_do_the_work_has_no_figure() -> None:
    make = agents._ratio(20, least=2.0, count=20)
    done, not_done = agents.Said(cpu=1.0, count=20), agents.Said(cpu=0.1, count=3)
    assert make("loop", (done, done)).measured
    assert "20 and 3 of 20" in make("loop", (done, not_done)).note


def test_an_error_of_a_library_is_shown() -> None:
    failed = agents._figure("loop", (agents.Said(cpu=1.0), agents.Said(error="it broke")), agents._ratio(1, most=1.0))
    assert failed.verdict == "none"
    assert failed.note == "not measured: it broke"


def test_the_least_of_all_passes_counts() -> None:
    costs = iter((3.0, 1.0, 2.0))
    order = agents.Order("us", "text", "gemini", "0-1-0-burst")
    best = agents._measured([order], {"us": lambda _: agents.Said(cpu=next(costs), wall=1.0, count=1)}, 3)
    assert best[order].cpu == 1.0


def test_of_paced_deltas_the_median_counts_since_some_may_come_together() -> None:
    costs = iter((3.0, 1.0, 2.0))
    order = agents.Order("us", "text", "gemini", "0-1-0-paced")
    found = agents._measured([order], {"us": lambda _: agents.Said(cpu=next(costs), wall=1.0, count=1)}, 3)
    assert found[order].cpu == 2.0


def test_a_library_that_fails_in_one_pass_has_failed() -> None:
    answers = iter((agents.Said(error="it broke"), agents.Said(cpu=1.0, count=1)))
    order = agents.Order("us", "text", "gemini", "0-1-0-burst")
    assert agents._measured([order], {"us": lambda _: next(answers)}, 2)[order].error == "it broke"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("fragments", [0, 1, 7])
def test_the_server_says_the_same_whole_and_streamed(wire: str, fragments: int) -> None:
    codec = CODECS[wire]
    decoder = codec.decoder(Quirks())
    streamed = [delta for event in events(wire, deltas=3, fragments=fragments) for delta in decoder.feed(event)]
    reply = assemble([*streamed, *decoder.close()])
    whole = codec.decode(answer(wire, deltas=3, fragments=fragments), Quirks())
    assert reply.text == whole.text
    assert [(call.name, call.args) for call in reply.calls] == [(call.name, call.args) for call in whole.calls]
    assert [call.name for call in whole.calls] == ([TOOL] if fragments else [])
    assert ID in b"".join(events(wire, deltas=3, fragments=fragments))


def test_the_server_refuses_a_path_of_no_wire() -> None:
    async def asked() -> bytes:
        with agents.serve() as base:
            host, port = base.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /0-1-0-burst/v1/nothing HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
            line = await reader.readline()
            writer.close()
            await writer.wait_closed()
            return line

    assert asyncio.run(asked()) == b"HTTP/1.1 404 Not Found\r\n"


def test_a_library_is_driven_by_lines() -> None:
    lines = "import json, sys\nfor line in sys.stdin:\n    print(json.dumps({'cpu': json.loads(line)['times']}), flush=True)"
    with agents.drive([sys.executable, "-c", lines], Path.cwd(), "http://x") as drive:
        assert drive(agents.Order("it", "text", "gemini", "s", times=7)) == agents.Said(cpu=7)


def test_a_library_that_ends_is_told() -> None:
    with agents.drive([sys.executable, "-c", "input()"], Path.cwd(), "http://x") as drive:
        assert drive(agents.Order("it", "text", "gemini", "s")).error == "it ended"


def test_a_durable_turn_stands_beside_memory_and_bare_sqlite(capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["durable", "--passes", "1"])  # the figures of one pass mean nothing
    head, *rows, verdict = capsys.readouterr().out.splitlines()
    assert head.split() == ["CPU", "of", "a", "turn", "least", "us", "median", "us", "of", "memory", "commits"]
    assert [row.split(",")[0].split("  ")[0] for row in rows] == [
        *("memory log", "SQLite", "bare SQLite", "memory log"),
        *("memory log", "SQLite", "bare SQLite", "memory log"),
        *("memory log", "SQLite", "memory log", "SQLite"),  # answers in pieces
    ]
    assert "of 2 durable turns cost at most 2x of a memory turn (1 passes)" in verdict
