"""Whatever a tool returns or raises becomes an envelope. (S2.22, S2.23, S2.31, S2.32)"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import msgspec
import pydantic
import pytest

from evener.errors import BadValue
from evener.tools import Envelope, ModelRetry, ToolOutput, envelope_of
from evener.tools.result import MOST_MEDIA, report_error, report_failure, scrub_envelope
from evener.transcript import DocumentBlock, ImageBlock, Inline, TextBlock, ToolResult
from tests.tools.calls import named

PNG = b"\x89PNG\r\n\x1a\nrest"


@dataclass
class Place:
    city: str


class Size(msgspec.Struct):
    width: int


class Model(pydantic.BaseModel):
    day: date


class Color(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    YES = "yes"


class Markup(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Mean(float):
    """As numpy's float64 is a float."""


class Count(int): ...


VALUES = [
    ("text", "text"),
    ({"a": [1, None, True]}, '{"a":[1,null,true]}'),
    ([1, 2], "[1,2]"),
    (3, "3"),
    (2**80, str(2**80)),
    (False, "false"),
    (None, "(no output)"),
    (Place("Rome"), '{"city":"Rome"}'),
    (Size(3), '{"width":3}'),
    (Model(day=date(2026, 1, 31)), '{"day":"2026-01-31"}'),
    ([Model(day=date(2026, 1, 31))], '[{"day":"2026-01-31"}]'),
    (Color.RED, '"red"'),
    (Word.YES, "yes"),
    (Markup("<b>"), "<b>"),
    (Mean(1.5), "1.5"),
    ({"mean": Mean(1.5), "count": Count(3), "page": Markup("<b>")}, '{"mean":1.5,"count":3,"page":"<b>"}'),
    (date(2026, 1, 31), '"2026-01-31"'),
    (b"plain", "plain"),
    ("a\ud800b", "a?b"),
    (ToolOutput({"a": 1}, {"rows": 5}), '{"a":1}'),
    (TextBlock("block"), "block"),
    ([TextBlock("one"), "two", {"three": 3}], 'one\ntwo\n{"three":3}'),
]


@pytest.mark.parametrize(("value", "text"), VALUES, ids=named)
def test_a_value_becomes_text(value: object, text: str) -> None:
    """S2.23: result object, string or JSON value."""
    envelope = envelope_of(value)
    assert (envelope.ok, envelope.text, envelope.outcome, envelope.retry) == (True, text, "done", False)


@pytest.mark.parametrize(
    ("data", "media_type", "block"),
    [
        (PNG, "image/png", ImageBlock),
        (b"\xff\xd8\xff\xe0", "image/jpeg", ImageBlock),
        (b"GIF89a", "image/gif", ImageBlock),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp", ImageBlock),
        (b"%PDF-1.7", "application/pdf", DocumentBlock),
    ],
)
def test_bytes_are_known_by_what_they_begin_with(data: bytes, media_type: str, block: type) -> None:
    [found] = envelope_of(data).content
    assert isinstance(found, ImageBlock | DocumentBlock)
    assert type(found) is block
    assert found.media_type == media_type


def test_blocks_are_taken_as_they_are() -> None:
    image = ImageBlock(Inline("AAAA"), "image/png")
    assert envelope_of(image).content == (image,)
    assert envelope_of(["see", image]).content == (TextBlock("see"), image)
    assert envelope_of("").content == ()


def generator() -> Iterator[int]:
    yield 1


def loop() -> list[object]:
    inner: list[object] = []
    inner.append(inner)
    return inner


async def coroutine() -> None: ...


BAD = [
    (object(), "object"),
    (Path("x"), "Path"),
    ({(1, 2): 3}, "dict"),
    (float("nan"), "NaN"),
    ({"a": [float("inf"), None]}, "infinity"),
    ([Mean("nan")], "NaN"),
    (generator(), "generator"),
    (b"\xff\x00\xfe", "neither text nor a known kind"),
    (b"\x89PNG\r\n\x1a\n" + bytes(MOST_MEDIA), "make it smaller"),
    (lambda: 1, "function"),
    (ToolOutput("x", {"a": object()}), "metadata"),
]


@pytest.mark.parametrize(("value", "said"), BAD, ids=named)
def test_what_cannot_be_shown_is_a_failed_result_that_says_what_to_return(value: object, said: str) -> None:
    envelope = envelope_of(value)
    assert (envelope.ok, envelope.outcome, envelope.retry) == (False, "failed", False)
    assert said in envelope.text
    assert "should return a text, a JSON value" in envelope.text


def test_a_value_that_contains_itself_and_a_forgotten_coroutine_fail_clearly() -> None:
    assert not envelope_of(loop()).ok
    assert "has not run yet" in envelope_of(coroutine()).text


def test_metadata_is_for_the_program_only() -> None:
    """S2.22: {ok, content, metadata}."""
    envelope = envelope_of(ToolOutput("text", {"rows": 5}))
    assert envelope.metadata == {"rows": 5}
    envelope.metadata["rows"] = 6
    assert envelope.metadata == {"rows": 5}
    assert envelope.to_result("c1") == ToolResult("c1", (TextBlock("text"),))
    assert report_failure("no").to_result("c2") == ToolResult("c2", (TextBlock("no"),), is_error=True)


def test_an_envelope_is_kept_as_json() -> None:
    envelope = Envelope(False, (TextBlock("a"),), '{"b":1}', retry=True, outcome="unknown")
    assert msgspec.json.decode(msgspec.json.encode(envelope), type=Envelope) == envelope


@pytest.mark.parametrize(("field", "value"), [("ok", 1), ("content", (5,)), ("meta", "[]"), ("retry", 0), ("outcome", "maybe")])
def test_an_envelope_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(BadValue):
        msgspec.structs.replace(Envelope(True), **{field: value})


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


RAISED: list[tuple[BaseException, str, bool]] = [
    (ValueError("no such city"), "The tool 't' failed with ValueError: no such city", False),
    (KeyError("x"), "The tool 't' failed with KeyError: 'x'", False),
    (RuntimeError(), "The tool 't' failed with RuntimeError", False),
    (ModelRetry("use ISO dates"), "use ISO dates", True),
    (Mute(), "The tool 't' failed with Mute: (its message cannot be read)", False),
    (SystemExit(3), "The tool 't' failed with SystemExit: 3", False),
    (ExceptionGroup("two", [OSError("a"), OSError("b")]), "OSError: a; OSError: b", False),
    (ValueError("x" * 100_000), "xxx", False),
]


@pytest.mark.parametrize(("error", "text", "retry"), RAISED, ids=named)
def test_an_exception_is_its_type_and_its_words(error: BaseException, text: str, retry: bool) -> None:
    """S2.31: ModelRetry is retryable. S2.32: others are not."""
    envelope = report_error(error, "t")
    assert (envelope.ok, envelope.retry, envelope.outcome) == (False, retry, "failed")
    assert text in envelope.text
    assert len(envelope.text) < 5_000
    assert "Traceback" not in envelope.text


def test_secrets_are_scrubbed_from_texts() -> None:
    """S1.28."""
    image = ImageBlock(Inline("AAAA"), "image/png")
    envelope = Envelope(True, (TextBlock("key sk-1 here"), image))
    assert scrub_envelope(envelope, lambda text: text.replace("sk-1", "[secret]")).content == (
        TextBlock("key [secret] here"),
        image,
    )
    assert scrub_envelope(envelope, lambda text: text) is envelope
