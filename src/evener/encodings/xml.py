"""Reads calls that stand in the text between tags. Pure; any cut of the text gives the same pieces, and nothing raises.

    <tool_call name="NAME">{"argument": "value"}</tool_call>

Also taken is the form that many open models have learned: an object with `name` and `arguments` between bare tags. The
closing tag counts only outside a JSON string; where a string never ends, the first one does.
"""

import re
from html import unescape

from evener.encodings.buffer import MOST, AnswerBuffer, ReadState, bare, marker
from evener.encodings.json import named_arguments

__all__ = [
    "XmlReader",
]


OPEN = marker("", ["<tool_call"], after=r"(?=[\s>/])")
CLOSE = "</tool_call>"
NAME = re.compile(r"""\sname\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>/]+))""")
OUTSIDE = re.compile(rf'"|{CLOSE}')
INSIDE = re.compile(r'\\.|"', re.DOTALL)
TRAIL = re.compile(
    rf"(?:\s|`){{0,{MOST}}}(?:" + "|".join(re.escape(CLOSE[:size]) for size in range(len(CLOSE) - 1, 0, -1)) + r")?\Z"
)
LEAD = re.compile(r"\s*(?:```\w*[ \t]*\r?\n)?\s*")


class XmlReader:
    """The states of the reader; `start` is the first."""

    def __init__(self, tape: AnswerBuffer) -> None:
        self._tape = tape
        self._fenced = False
        self._tag = ""
        self._name = ""
        self._body: list[str] = []
        self._quoted = False
        self._given = False

    def start(self) -> ReadState | None:
        """Text, up to the next call."""
        tape = self._tape
        found = tape.say_until(OPEN)
        if found is None:
            return None
        end = tape.held.find(">")
        if end < 0:
            if tape.ended:
                tape.note("malformed_call", tape.held)
                tape.say(tape.take(len(tape.held)))
            return None
        tag = tape.take(end + 1)
        self._fenced, self._tag = self._fenced or "```" in tag, tag[tag.index("<") :]
        return self._opened(NAME.search(self._tag))

    def _opened(self, name: "re.Match[str] | None") -> ReadState:
        self._name = unescape(next((text for text in name.groups() if text is not None), "")) if name else ""
        self._body, self._quoted, self._given = [], False, False
        if self._name:
            self._tape.call(self._name)
        if self._tag.endswith("/>"):
            return self._closed("")
        return self._inside

    def _inside(self) -> ReadState | None:
        """The arguments, up to the closing tag."""
        tape = self._tape
        place = 0
        while found := (INSIDE if self._quoted else OUTSIDE).search(tape.held, place):
            if found[0] == CLOSE:
                self._keep(tape.take(found.start()))
                tape.take(len(CLOSE))
                return self._closed("".join(self._body))
            place = found.end()
            self._quoted = self._quoted != (found[0] == '"')
        if tape.ended:
            return self._unclosed("".join(self._body) + tape.take(len(tape.held)))
        if self._quoted:
            sure = len(tape.held) - tape.held.endswith("\\")
            self._keep(tape.take(max(place, sure)))
        else:
            begun = TRAIL.search(tape.held, place)
            self._keep(tape.take(begun.start() if begun else len(tape.held)))
        return None

    def _keep(self, text: str) -> None:
        """More of the arguments. Where they begin, white space and a fence are not theirs."""
        self._body.append(text)
        if not self._name or (not self._given and not text.strip()):
            return
        if not self._given:
            text = LEAD.sub("", "".join(self._body), count=1)
            self._given = text[:1] not in ("", "`")
            text = text if self._given else ""
        self._tape.give(text)

    def _closed(self, body: str) -> ReadState:
        tape = self._tape
        raw = bare(body)
        if self._name:
            tape.finish(raw or "{}")
        elif pair := named_arguments(raw):
            tape.call(pair[0])
            tape.give(pair[1])
            tape.finish(pair[1])
        else:
            whole = f"{self._tag}{body}{CLOSE}"
            tape.note("malformed_call", whole)
            tape.say(whole)
        return self._after

    def _unclosed(self, body: str) -> ReadState | None:
        """The text ended within a call. A tag inside a broken string counts after all; else the rest is the arguments."""
        tape = self._tape
        inner, close, rest = body.partition(CLOSE)
        if close:
            tape.held = rest
            return self._closed(inner)
        raw = bare(body)
        if self._name:
            tape.finish(raw or self._tag + body)
        elif named_arguments(raw):
            return self._closed(body)
        else:
            tape.note("malformed_call", self._tag + body)
            tape.say(self._tag + body)
        return None

    def _after(self) -> ReadState | None:
        """Behind a call: the end of the fence that it stood in."""
        tape = self._tape
        if not self._fenced:
            return self.start
        rest = tape.held.lstrip()
        if rest.startswith("```"):
            tape.take(len(tape.held) - len(rest) + 3)
            self._fenced = False
        elif "```".startswith(rest) and not tape.ended:
            return None
        return self.start
