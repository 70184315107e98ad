"""Output that would overwhelm the transcript is contained, and can still be read. (S0.54)"""

import json
import re
import subprocess
import sys

import pytest

from evener.tools import Envelope, MemoryBlobs, Tool, ToolOutput, envelope_of, read_output_tool, spill, tool
from evener.tools.spill import MOST_CHARACTERS
from evener.transcript import ImageBlock, Inline, TextBlock
from tests.tools.calls import call, run

TEXT = "".join(f"line {number} \u00e9\U0001f600\n" for number in range(20_000))


def test_small_output_stays_as_it_is() -> None:
    envelope = envelope_of("x" * 100)
    assert spill(envelope, MemoryBlobs(), limit=100) is envelope


def test_large_output_keeps_head_and_tail_and_says_how_to_read_the_rest() -> None:
    """S0.54."""
    blobs = MemoryBlobs()
    short = spill(envelope_of(ToolOutput(TEXT, {"rows": 1})), blobs, limit=1_000)
    assert short.spilled is not None
    id = short.spilled.id
    assert blobs.get(id) == TEXT.encode()
    assert (short.metadata, short.spilled.characters) == ({"rows": 1}, len(TEXT))
    assert short.text.startswith(TEXT[:750])
    assert short.text.endswith(TEXT[-250:])
    assert len(short.text) < 1_400
    assert f"[The output has {len(TEXT):,} characters in 20,000 lines." in short.text
    assert f'read_output(id="{id}", offset=750)' in short.text


def test_several_texts_count_together_and_pictures_stay() -> None:
    image = ImageBlock(Inline("AAAA"), "image/png")
    short = spill(Envelope(True, (TextBlock("a" * 60), image, TextBlock("b" * 60))), MemoryBlobs(), limit=100)
    assert [block.kind for block in short.content] == ["text", "image"]
    assert short.text.startswith("a" * 60)
    assert short.text.endswith("b" * 25)


@pytest.fixture
def held() -> tuple[Tool, str]:
    blobs = MemoryBlobs()
    return read_output_tool(blobs), blobs.put(TEXT.encode())


def page(reader: Tool, **arguments: object) -> str:
    return run(call(reader, json.dumps(arguments))).text


def test_paging_by_characters_gives_the_whole_text(held: tuple[Tool, str]) -> None:
    reader, id = held
    offset, found = 0, ""
    for _ in range(30):
        text = page(reader, id=id, offset=offset, limit=MOST_CHARACTERS)
        body, _, notice = text.rpartition("\n[Characters ")
        found += body
        onward = re.search(r"offset=(\d+)", notice)
        if onward is None:
            assert "This is the end." in notice
            break
        offset = int(onward[1])
    assert found == TEXT


def test_paging_by_lines_gives_the_whole_text(held: tuple[Tool, str]) -> None:
    reader, id = held
    lines: list[str] = []
    for _ in range(30):
        text = page(reader, id=id, offset=len(lines), limit=900, unit="lines")
        body, _, notice = text.rpartition("\n[Lines ")
        lines += body.split("\n")
        if "This is the end." in notice:
            break
    assert lines == TEXT.removesuffix("\n").split("\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"offset": 10_000_000}, "There is nothing from character 10,000,000 on"),
        ({"offset": 10_000_000, "unit": "lines"}, "There is no line 10,000,000"),
        ({"limit": MOST_CHARACTERS + 1}, "limit: must be at most"),
        ({"limit": 0}, "limit: must be at least 1"),
        ({"offset": -1}, "offset: must be at least 0"),
        ({"unit": "words"}, "unit: must be one of"),
        ({"id": "nothing"}, "There is no output with the id 'nothing'"),
    ],
)
def test_the_bounds_of_paging_are_told(held: tuple[Tool, str], arguments: dict[str, object], said: str) -> None:
    reader, id = held
    assert said in page(reader, **{"id": id, **arguments})


def test_one_endless_line_is_cut_and_goes_on_by_characters() -> None:
    blobs = MemoryBlobs()
    reader, id = read_output_tool(blobs), blobs.put(("\u00e9\n" + "\u00e9" * 100_000).encode())
    text = page(reader, id=id, offset=1, unit="lines")
    assert text.startswith("\u00e9" * MOST_CHARACTERS + "\n[Lines 1 to 1 of 2, cut after 20,000 characters.")
    assert 'unit="characters", offset=20002' in text


def test_bytes_that_are_no_text_can_be_paged_as_well() -> None:
    blobs = MemoryBlobs()
    reader, id = read_output_tool(blobs), blobs.put(b"\x80" * 200_000)
    assert "of 200,000." in page(reader, id=id, offset=150_000, limit=10)


def test_a_large_result_is_spilled_when_the_call_is_run() -> None:
    """S0.54."""
    blobs = MemoryBlobs()

    @tool(effect="read", output_limit=1_000)
    def much() -> str:
        return TEXT

    envelope = run(call(much, blobs=blobs))
    assert envelope.ok
    assert len(envelope.text) < 1_400
    assert len(run(call(much)).text) == len(TEXT)


MEASURE = """
import asyncio
from bench.memory import most_resident as peak
from evener.tools import MemoryBlobs, Threads, ToolContext, read_output_tool, run_call, tool
from evener.transcript import ToolCall

SIZE = 50_000_000

@tool(effect="read")
def much() -> str:
    return "x" * SIZE

@tool(effect="read")
def rows() -> list[str]:
    return ["x" * 1000] * (SIZE // 1003)

async def main():
    threads, blobs = Threads(2), MemoryBlobs()
    before = peak()
    made = {"much": much, "rows": rows}[KIND]
    envelope = await run_call(
        made, ToolCall("c", made.name), context=ToolContext(call_id="c", deps=None), threads=threads, blobs=blobs
    )
    assert envelope.ok and len(envelope.text) < 51_000, envelope.text[:300]
    reader = read_output_tool(blobs)
    call = ToolCall.of("d", "read_output", {"id": envelope.spilled.id, "offset": SIZE - 100_000, "limit": 5})
    page = await run_call(reader, call, context=ToolContext(call_id="d", deps=None), threads=threads)
    assert page.text.startswith("xxxxx") or KIND == "rows", page.text
    print((peak() - before) / SIZE)

asyncio.run(main())
"""


@pytest.mark.parametrize(("kind", "most"), [("much", 2.6), ("rows", 3.6)])
def test_fifty_megabytes_cost_few_copies(kind: str, most: float) -> None:
    """The text that the tool made, and its bytes. A list of rows is JSON as bytes and as text on the way."""
    code = f"KIND = {kind!r}\n{MEASURE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < most, done.stdout
