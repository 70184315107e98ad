"""Arguments as a user sees them who decides: nothing that the text says is lost on the way."""

import pytest

from evener.transcript.blocks import ToolCall
from evener.view.arguments import question_of, write_arguments


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ('{"path":"safe","path":"/etc"}', '{\n "path": "safe",\n "path": "/etc"\n}'),
        ('{"n":12345678901234567891,"x":1.10}', '{\n "n": 12345678901234567891,\n "x": 1.10\n}'),
        ('{"command":"\\u0072\\u006d -rf"}', '{\n "command": "rm -rf"\n}'),
        ('{"half":"\\ud800"}', '{\n "half": "\\ud800"\n}'),
        ('{"a":[],"b":{},"c":[1,[null,true]]}', '{\n "a": [],\n "b": {},\n "c": [\n  1,\n  [\n   null,\n   true\n  ]\n ]\n}'),
        ("no JSON", "no JSON"),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=["a name twice", "large numbers", "escapes", "half a pair", "nested", "none", "too deep"],
)
def test_arguments_are_shown_with_all_that_reading_them_would_lose(raw: str, shown: str) -> None:
    assert write_arguments(raw) == shown


def test_only_a_plain_question_is_shown_as_one() -> None:
    """With more fields than a question has, it is shown as any call is: with all of them."""
    asked = ToolCall.of("c", "ask_user", {"question": "Which?", "choices": ["a"]})
    assert question_of(asked) == {"text": "Which?", "choices": ["a"]}
    assert question_of(ToolCall.of("c", "ask_user", {"question": "Which?", "more": 1})) is None
    assert question_of(ToolCall("c", "ask_user", "{")) is None
    assert question_of(ToolCall.of("c", "look", {"question": "Which?"})) is None
