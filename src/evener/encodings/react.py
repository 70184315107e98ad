"""Reads Thought / Action / Action Input / Final Answer. Pure; any chunking of the text gives the same pieces, and nothing
raises.

A label counts at the beginning of a line. Arguments end where their JSON object ends. What a model invents after
`Observation:` is neither a result nor text: it becomes a notice.
"""

import re

from evener.encodings.buffer import FENCE, FENCE_END, LINE, MOST, AnswerBuffer, Chars, Either, Kind, Marker, Wait, strip_fence

LABELS = ("Thought", "Action Input", "Action", "Observation", "Final Answer")
SPACES, FEW_SPACES = Chars(rf"[ \t]{{0,{MOST}}}"), Chars(r"[ \t]{0,40}")
LABEL = Marker((LINE, FENCE, Either(LABELS, "word"), SPACES, ":"))
INPUT = Marker((Chars(r"\s*"), "Action Input", SPACES, ":"))
EMPTY = Marker((Either(LABELS), FEW_SPACES, ":"))
"""A label where the arguments should stand."""
LEAD = Marker(
    (Either((("```", Chars(r"\w*"), Chars(r"[ \t]*"), Chars(r"\r?"), "\n", Chars(r"\s*")), ())), Chars(r"(?=[^\s`])"))
)
"""A fence before the arguments, if there is one."""
NEXT = re.compile(r"\n[ \t]{0,40}(?:" + "|".join(LABELS) + r")[ \t]{0,40}:")
LONGEST = 100  # characters of a label with what is around it
QUOTES = " \t\r`\"'*"


def read_react(tape: AnswerBuffer) -> Wait[None]:
    """Read an answer: text, thoughts, calls."""
    kind: Kind = "text"
    fenced = False  # a label stood behind the start of a code fence
    while True:
        if tape.ended and fenced and not tape.in_fence and tape.held.strip() == "```":
            tape.take_all()
        found = tape.say_before(LABEL, kind)
        if found is None:
            if tape.ended:
                return
            yield
            continue
        label, word = tape.take(len(found[0])), found["word"]
        fenced = fenced or bool(found["fence"])
        if word == "Action Input" or (word == "Observation" and not tape.called):  # it answers nothing: text
            tape.say(label, kind)
        elif word == "Action":
            name = yield from _read_name(tape, kind)
            if name and (yield from _read_arguments(tape, f"Action: {name}")):
                fenced = False
            kind = "text" if name else kind
        else:
            tape.label()
            kind = "thought" if word == "Thought" else "text"
            if word == "Observation":
                yield from _read_invented(tape)
                return


def _read_invented(tape: AnswerBuffer) -> Wait[None]:
    """Turn the rest of the answer into a notice: the model invented a result instead of waiting for it."""
    text = tape.take_all()
    while not tape.ended:
        yield
        text += tape.take_all()
    if text := text.strip():
        tape.note("invented_result", text)


def _read_name(tape: AnswerBuffer, kind: Kind) -> Wait[str]:
    """Begin the call of the tool that the line names; return its name, empty if there is none."""
    while "\n" not in tape.held and not tape.ended:
        yield
    tape.cut = tape.cut or "\n" not in tape.held
    line = tape.take(len(tape.held.partition("\n")[0]))
    name = line.strip(QUOTES)
    if name:
        tape.call(name)
    else:
        tape.reject(f"Action:{line}", kind)
    return name


def _read_arguments(tape: AnswerBuffer, label: str) -> Wait[bool]:
    """Read the arguments of a call; True if a fence ended them.

    If the text ends before the arguments, the call must not look like one without arguments: `label` is kept instead.
    """
    if not (yield from tape.skip(INPUT)) or not (yield from _reach_arguments(tape)):
        tape.cut = tape.cut or (tape.ended and INPUT.begun.match(tape.held) is not None)
        tape.finish(label if tape.cut else "{}")
        return False
    if tape.held[:1] == "{":
        text, closed = yield from tape.take_value(tape.give)
        if closed:
            tape.finish(text)
            return (yield from tape.skip(FENCE_END))
        found = NEXT.search(text)  # an object that never ends, ends before the next label
        tape.cut = tape.cut or not found
        end = found.start() if found else len(text)
        tape.held = text[end:]
        tape.finish(strip_fence(text[:end]))
        return False
    looked = 0
    while not (found := NEXT.search(tape.held, max(0, looked - LONGEST))) and not tape.ended:
        looked = len(tape.held)
        yield
    tape.cut = tape.cut or not found
    tape.finish(strip_fence(tape.take(found.start() if found else len(tape.held))) or ("{}" if found else label))
    return False


def _reach_arguments(tape: AnswerBuffer) -> Wait[bool]:
    """Remove white space and a fence before the arguments. False if a label on its own line comes instead."""
    below = False
    while True:
        space = tape.take(len(tape.held) - len(tape.held.lstrip()))
        below = below or "\n" in space
        if below and EMPTY.whole.match(tape.held):
            tape.seen = "\n"
            return False
        found = LEAD.whole.match(tape.held)
        label = below and EMPTY.begun.match(tape.held)
        if tape.ended or not (label or (not found and LEAD.begun.match(tape.held))):
            tape.take(found.end() if found else 0)
            return True
        yield
