"""Transcripts: immutable paths that share their past."""

import copy
import gc
import pickle
from collections.abc import Callable

import pytest

from evener.errors import BadValue
from evener.transcript import Message, TextBlock, Transcript

MANY = 200_000


def numbered(count: int, start: int = 0) -> list[Message]:
    return [Message("user", (TextBlock("x"),), id=f"m{n}", created_at=None) for n in range(start, start + count)]


def test_an_empty_transcript_has_nothing() -> None:  # S0.2, S0.18
    empty = Transcript()
    assert len(empty) == 0
    assert empty.last is None
    assert empty.head is None
    assert empty.system is None
    assert list(empty) == []
    assert bool(empty)  # it is there, though nothing is in it


def test_append_and_extend_leave_the_old_one_as_it_was() -> None:  # S0.18
    one, two, three = numbered(3)
    start = Transcript([one])
    longer = start.append(two)
    longest = longer.extend([three])
    assert [len(start), len(longer), len(longest)] == [1, 2, 3]
    assert [message.id for message in longest] == ["m0", "m1", "m2"]
    assert longest.last is not None
    assert longest.last.id == "m2"
    assert longest == Transcript([one, two, three]) != longer


def test_the_system_prompt_stands_apart_from_the_messages() -> None:  # S0.19
    parts = (TextBlock("Be brief.", cache="5m"), TextBlock("Be kind."))
    transcript = Transcript([Message.user_text("hi")], system=parts)
    assert transcript.system == "Be brief.\nBe kind."
    assert transcript.system_blocks == parts
    assert [message.role for message in transcript] == ["user"]
    assert Transcript(system="Be brief.").system_blocks == (TextBlock("Be brief."),)
    assert Transcript(system="").system is None
    other = transcript.with_system("Be long.")
    assert other.system == "Be long."
    assert other.head is transcript.head
    assert other != transcript
    assert transcript.append(Message.user_text("ho")).system == transcript.system


def test_a_message_is_linked_to_the_one_before_it() -> None:
    transcript = Transcript(numbered(3))
    assert [message.parent_id for message in transcript] == ["", "m0", "m1"]


def test_a_message_taken_from_elsewhere_is_linked_anew() -> None:
    first, second, third = Transcript(numbered(3))
    assert [message.parent_id for message in Transcript([first, third])] == ["", "m0"]
    assert third.parent_id == "m1"
    assert [message.parent_id for message in Transcript([second, third])] == ["m0", "m1"]  # the past may be left behind


def test_a_fork_shares_the_past() -> None:  # S3.6
    base = Transcript(numbered(5))
    left, right = base.append(Message.user_text("left")), base.append(Message.user_text("right"))
    assert left != right
    assert left.head is not None
    assert right.head is not None
    assert left.head.parent is right.head.parent is base.head
    assert all(one is other for one, other in zip(left.messages[:5], right.messages[:5], strict=True))


def test_a_path_knows_its_nodes() -> None:  # S3.6
    base = Transcript(numbered(2))
    fork = base.append(Message.user_text("x"))
    other = base.append(Message.user_text("y"))
    assert fork.extends(base.head)
    assert fork.extends(None)
    assert not fork.extends(other.head)
    assert not base.extends(fork.head)
    assert fork.since(base.head) == (fork.last,)
    assert fork.at(base.head) == base
    assert fork.at(None) == Transcript()
    for wrong in (lambda: fork.since(other.head), lambda: fork.at(other.head)):
        with pytest.raises(BadValue, match="not on this transcript's path"):
            wrong()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Transcript("hi"), "Transcript messages"),  # type: ignore[arg-type]
        (lambda: Transcript(5), "Transcript messages"),  # type: ignore[arg-type]
        (lambda: Transcript(["hi"]), "holds messages, not str"),  # type: ignore[list-item]
        (lambda: Transcript([{"role": "user"}]), "holds messages, not dict"),  # type: ignore[list-item]
        (lambda: Transcript().append("hi"), "holds messages, not str"),  # type: ignore[arg-type]
        (lambda: Transcript(system=5), "Transcript.system"),  # type: ignore[arg-type]
        (lambda: Transcript(system=["hi"]), "Transcript.system"),  # type: ignore[list-item]
        (lambda: Transcript(system="\ud800"), "lone surrogate"),
    ],
)
def test_a_transcript_that_cannot_exist_is_refused(make: Callable[[], Transcript], match: str) -> None:  # S0.2
    with pytest.raises(BadValue, match=match):
        make()


def test_a_failed_extension_changes_nothing() -> None:
    base = Transcript(numbered(1))
    with pytest.raises(BadValue):
        base.extend([Message.user_text("x"), "y"])  # type: ignore[list-item]
    assert len(base) == 1


def test_two_hundred_thousand_messages_are_nothing_special() -> None:
    deep = Transcript(numbered(MANY))
    assert len(deep) == MANY
    assert deep == Transcript(deep.messages)
    assert deep != Transcript([*deep.messages[:-1], Message.user_text("y")])
    assert sum(1 for _ in deep) == MANY
    assert deep.extends(deep.at(None).head)
    assert f"{MANY} messages" in repr(deep)
    del deep
    gc.collect()


def test_a_deep_transcript_is_copied_and_pickled() -> None:
    deep = Transcript(numbered(5_000), system="Be brief.")
    for same in (copy.copy(deep), copy.deepcopy(deep), pickle.loads(pickle.dumps(deep))):
        assert same == deep


def test_a_transcript_is_compared_by_what_it_says() -> None:
    messages = numbered(2)
    assert Transcript(messages) == Transcript(messages)
    assert Transcript(messages) != Transcript(messages, system="x")
    assert Transcript(messages) != messages
    with pytest.raises(TypeError):
        hash(Transcript())
