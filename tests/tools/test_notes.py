"""The scratchpad as a tool. (S4.19)"""

import json

import pytest
from msgspec.structs import replace

from evener.context import Bounds, Scratchpad
from evener.context.scratchpad import SECTIONS, Appended, Removed, SectionShown, Set, fold, show
from evener.errors import BadDocument
from evener.tools import Envelope, ToolContext
from evener.tools.scratchpad import MemoryNotebook, Notebook, changes_in, pad_of, scratchpad_tool
from tests.tools.calls import call, context, run

TWO = fold([Set("plan", ("look", "leap"))])


def use(notebook: Notebook, arguments: dict[str, object], *, key: str = "", bounds: Bounds | None = None) -> Envelope:
    within: ToolContext[object] = replace(context(), key=key)
    return run(call(scratchpad_tool(notebook, bounds=bounds), json.dumps(arguments), within=within))


@pytest.mark.parametrize(
    ("arguments", "text", "facts"),
    [
        ({"action": "append", "section": "plan", "text": "rest"}, "Noted as 3.\n\n## Plan\n1. look\n2. leap\n3. rest", 1),
        ({"action": "set", "section": "plan", "texts": ["a"]}, "1 notes set.\n\n## Plan\n3. a", 1),
        ({"action": "set", "section": "plan", "texts": []}, "0 notes set. The section 'plan' is empty.", 1),
        ({"action": "remove", "section": "plan", "number": 1}, "Note 1 removed.\n\n## Plan\n2. leap", 1),
        ({"action": "clear", "section": "plan"}, "Cleared. The section 'plan' is empty.", 1),
        ({"action": "show"}, "The scratchpad.\n\n## Plan\n1. look\n2. leap", 0),
        ({"action": "show", "section": "memory"}, "The scratchpad. The section 'memory' is empty.", 0),
    ],
)
def test_s4_19_the_model_keeps_its_notes_and_each_change_is_a_fact(arguments: dict[str, object], text: str, facts: int) -> None:
    notebook = MemoryNotebook(TWO)
    envelope = use(notebook, arguments)
    assert (envelope.ok, envelope.text) == (True, text)
    assert len(changes_in(envelope.meta)) == facts
    assert pad_of([envelope.meta], TWO) == notebook.pad


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"action": "append", "text": "a"}, "Say which section to append: reasoning, plan, memory, results."),
        ({"action": "append", "section": "plan"}, "To append, give 'text'."),
        ({"action": "append", "section": "plan", "text": "  "}, "A note must not be empty."),
        ({"action": "append", "section": "plan", "text": "a", "number": 1}, "only 'text' is used, not 'number'."),
        ({"action": "set", "section": "plan", "text": "a"}, "To set, give 'texts'."),
        ({"action": "remove", "section": "plan"}, "To remove, give 'number'."),
        ({"action": "remove", "section": "plan", "number": 9}, "There is no note 9 in 'plan'. It has the notes 1, 2."),
        ({"action": "clear", "section": "plan", "text": "a"}, "none of these is used, not 'text'"),
        ({"action": "append", "section": "results", "text": "a"}, "The section 'results' is not yours. Use reasoning or plan"),
        ({"action": "show", "section": "results"}, "The section 'results' is not yours."),
        ({"action": "append", "section": "plan", "text": "x" * 200}, "at most 100 are allowed. Remove finished notes"),
        ({"action": "burn", "section": "plan"}, "action"),
        ({"action": "append", "section": "diary", "text": "a"}, "section"),
        ({"action": "append", "section": "plan", "text": "a", "more": 1}, "more"),
    ],
)
def test_s4_19_a_call_that_makes_no_sense_asks_the_model_to_do_better(arguments: dict[str, object], words: str) -> None:
    pad = fold([SectionShown("results", "hidden")], TWO)
    notebook = MemoryNotebook(pad)
    envelope = use(notebook, arguments, bounds=Bounds(characters=100))
    assert (envelope.ok, envelope.retry) == (False, True)
    assert words in envelope.text
    assert notebook.pad == pad
    assert changes_in(envelope.meta) == ()


@pytest.mark.parametrize(
    "arguments",
    [{"action": "append", "section": "plan", "text": "a"}, {"action": "remove", "section": "plan", "number": 1}],
)
def test_the_same_call_again_says_the_same_and_changes_nothing(arguments: dict[str, object]) -> None:
    notebook = MemoryNotebook(TWO)
    first = use(notebook, arguments, key="k")
    after = notebook.pad
    assert use(notebook, arguments, key="k") == first
    assert notebook.pad == after != TWO


def test_the_tool_is_idempotent_and_names_its_actions() -> None:
    made = scratchpad_tool(MemoryNotebook(), name="notes")
    assert (made.name, made.effect, made.sequential, made.approval) == ("notes", "idempotent", True, False)
    properties = json.loads(made.schema)["properties"]
    assert properties["action"]["enum"] == ["show", "append", "set", "remove", "clear"]
    assert set(SECTIONS) <= set(json.dumps(properties["section"]).replace('"', " ").split())
    assert "context" not in properties


def test_the_pad_of_a_conversation_is_the_fold_of_its_results() -> None:
    notebook, results = MemoryNotebook(), ['{"other":1}', "{}"]
    for number in range(5):
        arguments: dict[str, object] = {"action": "append", "section": "memory", "text": f"note {number}"}
        results.append(use(notebook, arguments, key=str(number)).meta)
    results.append(use(notebook, {"action": "remove", "section": "memory", "number": 2}, key="5").meta)
    assert pad_of(results) == notebook.pad
    assert changes_in(results[-1]) == (Removed("memory", 2),)
    assert show(notebook.pad).count("note ") == 4


def test_facts_that_cannot_be_read_are_an_error_not_a_guess() -> None:
    with pytest.raises(BadDocument):
        changes_in('{"scratchpad":[{"kind":"burned"}]}')


def test_only_the_last_keys_are_remembered() -> None:
    notebook = MemoryNotebook()
    for number in range(300):
        notebook.write(Appended("plan", "a"), replace(context(), key=str(number)))
    assert notebook.pad.count == 300
    assert notebook.read(replace(context(), key="0")) == notebook.pad
    assert notebook.read(replace(context(), key="299")).count == 299
    assert Scratchpad().count == 0
