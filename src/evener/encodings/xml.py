"""Reads calls that stand in the text between tags. Pure; any cut of the text gives the same pieces, and nothing raises.

    <tool_call name="NAME">{"argument": "value"}</tool_call>

Also taken is the form that many open models have learned: an object with `name` and `arguments` between bare tags. The
closing tag counts only outside a JSON string; where a string never ends, the first one does.
"""

import re
from html import unescape

from evener.encodings.buffer import FENCE, FENCE_END, MOST, AnswerBuffer, Chars, Marker, Wait, strip_fence
from evener.encodings.json import named_arguments

OPEN = Marker((FENCE, "<tool_call", Chars(r"(?=[\s>/])")))
CLOSE = "</tool_call>"
TRAIL = Marker((Chars(rf"(?:\s|`){{0,{MOST}}}"), CLOSE))
"""The closing tag, and what before it is not of the arguments."""
NAME = re.compile(r"""\sname\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>/]+))""")
OUTSIDE = re.compile(rf'"|{CLOSE}')
INSIDE = re.compile(r'\\.|"', re.DOTALL)
LEAD = re.compile(r"\s*(?:```\w*[ \t]*\r?\n)?\s*")


def read_xml(tape: AnswerBuffer) -> Wait[None]:
    """Read an answer: text, and calls between tags."""
    fenced = False
    while (yield from tape.say_until(OPEN)):
        while (end := tape.held.find(">")) < 0:
            if tape.ended:
                tape.cut = True
                tape.reject(tape.take_all())
                return
            yield
        lead, start, rest = tape.take(end + 1).partition("<")
        fenced, tag = fenced or "```" in lead, start + rest
        yield from _read_call(tape, tag)
        if fenced and (yield from tape.skip(FENCE_END)):
            fenced = False


def _read_call(tape: AnswerBuffer, tag: str) -> Wait[None]:
    """Read a call after its opening tag."""
    named = NAME.search(tag)
    name = unescape(next((text for text in named.groups() if text is not None), "")) if named else ""
    if name:
        tape.call(name)
    body, closed = ("", True) if tag.endswith("/>") else (yield from _read_body(tape, shown=bool(name)))
    tape.cut = tape.cut or not closed
    raw, whole = strip_fence(body), f"{tag}{body}{CLOSE if closed else ''}"
    if name:
        tape.finish(raw or ("{}" if closed else whole))
    elif pair := named_arguments(raw):
        tape.call(pair[0])
        tape.give(pair[1])
        tape.finish(pair[1])
    else:
        tape.reject(whole)


def _read_body(tape: AnswerBuffer, *, shown: bool) -> Wait[tuple[str, bool]]:
    """Return the text before the closing tag, and whether there was a closing tag. The tag is removed.

    `shown`: emit the arguments as they arrive, without white space and a fence at their beginning.
    """
    body = ""
    quoted = given = False
    while True:
        place, closed = 0, False
        while found := (INSIDE if quoted else OUTSIDE).search(tape.held, place):
            if closed := found[0] == CLOSE:
                break
            place = found.end()
            quoted = quoted != (found[0] == '"')
        if tape.ended and not closed:
            break
        if found:
            sure = found.start()
        elif quoted:
            sure = max(place, len(tape.held) - tape.held.endswith("\\"))
        else:
            begun = TRAIL.begun.search(tape.held, place)
            sure = begun.start() if begun else len(tape.held)
        text = tape.take(sure)
        body += text
        if shown and not given and text.strip():
            text = LEAD.sub("", body, count=1)
            given = text[:1] not in ("", "`")
        if shown and given:
            tape.give(text)
        if closed:
            tape.take(len(CLOSE))
            return body, True
        yield
    inner, close, tape.held = (body + tape.take_all()).partition(CLOSE)  # a tag inside a broken string counts after all
    return inner, bool(close)
