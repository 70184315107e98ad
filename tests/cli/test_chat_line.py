"""The line that is being written: pastes in it, its history, what Tab offers and what @ brings. No terminal is needed."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.layout import BufferControl
from prompt_toolkit.layout.processors import TransformationInput

from evener.cli.chat.draft import Draft, Paste, Pastes, as_image, attach
from evener.cli.chat.history import History
from evener.cli.chat.keys import Offers
from evener.cli.chat.prompt import ShowPastes
from evener.transcript.blocks import ImageBlock, TextBlock
from tests.cli.test_complete import PNG

LONG = "line\n" * 10_000


def test_a_long_paste_is_one_piece() -> None:
    pastes = Pastes()
    mark = pastes.fold(LONG.replace("\n", "\r"))
    assert (len(mark), pastes.label(mark)) == (1, "[pasted 10,000 lines]")
    draft = pastes.draft(f"a{mark}b")
    assert draft == Draft(("a", Paste(LONG), "b"))
    assert draft.shown == "a[pasted 10,000 lines]b"
    assert draft.text == f"a{LONG}b"
    assert pastes.fold("x" * 1000) != mark
    assert Paste("x" * 1000).label == "[pasted 1,000 characters]"


def test_a_short_paste_is_text_without_what_steers_or_stands_for_another_paste() -> None:
    pastes = Pastes()
    mark = pastes.fold(LONG)
    assert pastes.fold(f"short\r\n\x1b[2Jpaste{mark}") == "short\npaste"
    assert pastes.draft("plain") == Draft(("plain",))
    assert pastes.draft("") == Draft()


@given(text=st.text(alphabet="ab \u6f22P", max_size=20))
def test_the_cursor_steps_over_a_paste_at_once(text: str) -> None:
    pastes = Pastes()
    line = text.replace("P", pastes.fold(LONG))
    control = BufferControl(Buffer())
    given_ = TransformationInput(control, Document(line), 0, lambda at: at, [("", line)], 80, 24)
    made = ShowPastes(pastes).apply_transformation(given_)
    assert fragment_list_to_text(made.fragments) == text.replace("P", "[pasted 10,000 lines]")
    for place in range(len(line) + 1):
        shown = made.source_to_display(place)
        assert shown == len(text[:place].replace("P", "[pasted 10,000 lines]"))
        assert made.display_to_source(shown) == place


def entries(file: Path) -> tuple[str, ...]:
    """What the file holds, the newest last."""
    return tuple(reversed(list(History(file).load_history_strings())))


def test_two_chats_add_to_one_history_file(tmp_path: Path) -> None:
    file = tmp_path / "history"
    one, two = History(file), History(file)
    one.add("from one")
    two.add("from two")
    one.add("one again")
    assert entries(file) == ("from one", "from two", "one again")
    assert (one.get_strings(), two.get_strings()) == (["from one", "one again"], ["from two"]), "each walks through its own"
    many = [History(file) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda chat: [chat.add(f"{many.index(chat)}-{number}") for number in range(10)], many))
    assert len(entries(file)) == 83


def test_the_history_file_is_private_bounded_and_forgiving(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "history"
    history = History(file)
    for number in range(1200):
        history.add(f"entry {number}\nof two lines")
    history.add("x" * 20_000)
    history.add("last")
    history.add("last")
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    again = entries(file)
    assert len(again) <= 1000
    assert again[-2:] == ("entry 1199\nof two lines", "last")
    file.write_bytes(b'"good"\n{bad\n\xff\n3\n"better"\n')
    assert entries(file) == ("good", "better")
    nowhere = History(tmp_path / "deep" / "history" / "below")
    nowhere.add("it is only not kept")
    assert nowhere.get_strings() == ["it is only not kept"]
    assert [json.loads(line) for line in file.read_bytes().splitlines()[:1]] == ["good"]


# What Tab offers, and what @ brings.


def test_tab_completes_commands_models_and_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "november").mkdir()
    (tmp_path / "my tea.png").touch()
    (tmp_path / ".hidden").touch()

    offers = Offers(commands=("/model", "/usage", "/undo"), models=lambda: ("claude", "gpt"), folder=tmp_path)

    def offered(text: str) -> list[str]:
        """What the line can become."""
        found = offers.get_completions(Document(text), CompleteEvent())
        return [text[: len(text) + one.start_position] + one.text for one in found]

    assert offered("/mo") == ["/model "]
    assert offered("/u") == ["/usage ", "/undo "]
    assert offered("/model cl") == ["/model claude"]
    assert offered("see @no") == ["see @notes.txt ", "see @november/"]
    assert offered("see @not") == ["see @notes.txt "]
    assert offered("@my") == ['@"my tea.png" ']
    assert offered('see @"my') == ['see @"my tea.png" ']
    assert offered("@.h") == ["@.hidden "]
    assert offered(f"@{tmp_path}/not") == [f"@{tmp_path}/notes.txt "]
    for nothing in ("plain text", "a@b", "@zzz", "@nowhere/x"):
        assert offered(nothing) == []


def test_files_that_are_named_come_along_and_pastes_are_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy tea", encoding="utf-8")
    (tmp_path / "tea.png").write_bytes(PNG)
    (tmp_path / "long.txt").write_text("x" * 300_000, encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\x00\xff\x00\xff" * 9)
    found = attach(Draft(("see @notes.txt, @tea.png and @notes.txt.", Paste("@long.txt"))), folder=tmp_path)
    assert [type(block) for block in found.blocks] == [TextBlock, TextBlock, ImageBlock]
    assert "buy tea" in "".join(block.text for block in found.blocks if isinstance(block, TextBlock))
    assert found.remarks == ("Attached notes.txt (7 bytes).", f"Attached the image tea.png ({len(PNG)} bytes).")
    missing = attach(Draft(("see @nots.txt",)), folder=tmp_path)
    assert missing.remarks == ("There is no file nots.txt; it was sent as text.",)
    stranger = attach(Draft(("see @~nobody-of-this-name/x.txt",)), folder=tmp_path)
    assert stranger.remarks == ("There is no file ~nobody-of-this-name/x.txt; it was sent as text.",)
    cut = attach(Draft(("@long.txt",)), folder=tmp_path)
    assert sum(len(block.text) for block in cut.blocks if isinstance(block, TextBlock)) < 201_000
    assert "cut after 200,000 characters" in cut.remarks[0]
    assert "neither UTF-8 text nor a supported image" in attach(Draft(("@binary",)), folder=tmp_path).remarks[0]
    assert attach(Draft(("mail me@home @alice",)), folder=tmp_path).remarks == ()


def test_a_pasted_path_of_a_picture_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "my tea.png").write_bytes(PNG)
    path = tmp_path / "my tea.png"
    escaped = str(path).replace(" ", "\\ ")
    for pasted in (str(path), f"'{path}'", f"{escaped}\n", path.as_uri()):
        assert as_image(pasted, folder=tmp_path) == f'@"{path}" '
    for other in ("my tea.txt", "nowhere.png", "two\nlines.png", "~nobody-of-this-name/x.png", "", "x" * 5000):
        assert as_image(other, folder=tmp_path) == ""
