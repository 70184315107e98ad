"""The bench commands run, on tiny sizes. What they print as figures means nothing here."""

import sys
import tomllib
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import peers
from bench.decode import check, decode_all
from bench.streams import SHAPES, STREAMS, Stream, stream_of
from bench.table import Figure, failed, printed
from evener.transcript.delta import Stopped
from evener.wire import CODECS

ROOT = Path(__file__).resolve().parents[2]


def test_every_wire_has_streams_to_decode() -> None:
    assert set(CODECS) <= set(STREAMS)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wire", [wire for wire in STREAMS if wire in CODECS])
def test_a_stream_is_understood(wire: str, shape: str) -> None:
    check(stream_of(wire, shape, 30))


def test_a_stream_that_is_misread_is_caught() -> None:
    good = stream_of("anthropic_messages", "text", 5)
    with pytest.raises(AssertionError, match="5 pieces of 6"):
        check(Stream(good.wire, good.shape, good.events, 6))


@pytest.mark.parametrize("size", [0, 1, 100, 1 << 20])
def test_chunks_hold_all_bytes(size: int) -> None:
    stream = stream_of("openai_responses", "text", 5)
    assert b"".join(stream.chunks(size)) == stream.data
    assert isinstance(decode_all(stream.wire, stream.chunks(size))[-1], Stopped)


def test_the_usual_command_prints_every_wire(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--quick"]) == 0
    said = capsys.readouterr().out
    for what in (*(f"decode {wire}" for wire in CODECS), *(f"encode {wire}" for wire in CODECS), "import evener.wire"):
        assert what in said


@pytest.mark.parametrize(("ours", "code"), [(1.9, 0), (2.1, 1)])
def test_only_a_strict_run_fails_on_a_missed_bar(ours: float, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command.FIGURES, "decode", lambda _: [Figure("x", ours, 1.0, most=2.0)])
    assert command.main(["decode"]) == 0
    assert command.main(["decode", "--strict"]) == code


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("x", 2.0, 1.0, most=2.0), "pass"),
        (Figure("x", 2.1, 1.0, most=2.0), "FAIL"),
        (Figure("x", 1.0, 5.0, least=5.0), "pass"),
        (Figure("x", 1.0, 4.9, least=5.0), "FAIL"),
        (Figure("x", 1.0, 4.9), ""),
        (Figure("x", least=5.0, note="not there"), "none"),
    ],
)
def test_a_figure_is_held_against_its_bar(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict
    assert bool(failed([figure])) is (verdict in ("FAIL", "none"))
    assert (verdict or "4.90 us") in printed([figure], "floor")


def test_the_peers_are_those_that_the_tests_use() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
    assert {f"{peer.package}=={peer.version}" for peer in peers.PEERS} <= set(wanted)


def test_a_peer_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*command: str, seconds: float) -> None:
        del seconds
        raise peers.Missing(f"no {command[-1]}")

    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(peers, "_run", refuse)
    found = peers.figures(peers.PEERS[:1], 5, 1)
    assert [figure.verdict for figure in found] == ["none"]
    assert "not measured: no" in printed(found, "peer")


def test_a_peer_decodes_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "environment", lambda _: Path(sys.executable))
    monkeypatch.setattr(peers, "SHAPES", ("text",))
    monkeypatch.setattr(peers, "CHUNKS", {"an event": 0})
    peer = next(peer for peer in peers.PEERS if peer.wire == "openai_responses")
    assert [figure.measured for figure in peers.figures((peer,), 20, 1)] == [True]


def test_the_framing_agrees_with_another_parser() -> None:
    assert command.main(["framing", "--seconds", "1", "--seed", "1"]) == 0
