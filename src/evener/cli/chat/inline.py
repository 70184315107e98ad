"""The marks inside a line of Markdown: emphasis, code, links. Pure; what is no mark stays as it was written."""

import re

from evener.cli.chat.layout import BOLD, CYAN, DIM, ITALIC, STRUCK, UNDERLINED, Span

__all__ = ["spans_of"]

LONGEST = 4000
"""Characters of a line beyond which marks are not looked for: nobody writes such a line by hand."""
DEEPEST = 6

LINK = re.compile(
    r"!?\[([^\[\]]{0,500})\]\(<?([^\s()<>]{0,1000}(?:\([^\s()]{0,200}\)[^\s()<>]{0,1000})?)>?(?:\s+\"[^\"]{0,200}\")?\)"
)
ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
TICKS = re.compile(r"`+")
MARKS = (
    ("***", f"{BOLD};{ITALIC}"),
    ("___", f"{BOLD};{ITALIC}"),
    ("**", BOLD),
    ("__", BOLD),
    ("~~", STRUCK),
    ("*", ITALIC),
    ("_", ITALIC),
)
ACTIVE = re.compile(r"[\\`*_~!\[]")


def spans_of(text: str, style: str = "") -> tuple[Span, ...]:
    """The line as styled text."""
    if len(text) > LONGEST:
        return (Span(text, style),)
    return tuple(_Reader(text, style, depth=0).spans())


class _Reader:
    """Goes over a text once. A mark that was looked for in vain is not looked for again."""

    def __init__(self, text: str, style: str, *, depth: int) -> None:
        self._text = text
        self._style = style
        self._depth = depth
        self._found: list[Span] = []
        self._plain = ""
        self._in_vain: set[str] = set()

    def spans(self) -> list[Span]:
        place = 0
        while place < len(self._text):
            hit = ACTIVE.search(self._text, place)
            if hit is None:
                break
            self._plain += self._text[place : hit.start()]
            place = self._mark(hit.start())
        self._plain += self._text[place:]
        self._flush()
        return self._found

    def _mark(self, place: int) -> int:
        """Take what begins here; where to go on."""
        match self._text[place]:
            case "\\":
                return self._escape(place)
            case "`":
                return self._code(place)
            case "[" | "!":
                return self._link(place)
            case _:
                return self._emphasis(place)

    def _escape(self, place: int) -> int:
        hit = ESCAPED.match(self._text, place)
        self._plain += hit[1] if hit else "\\"
        return hit.end() if hit else place + 1

    def _code(self, place: int) -> int:
        ticks = TICKS.match(self._text, place)
        assert ticks is not None
        run = ticks[0]
        end = -1 if run in self._in_vain else _closing_ticks(self._text, ticks.end(), run)
        if end < 0:
            self._in_vain.add(run)
            self._plain += run
            return ticks.end()
        inside = self._text[ticks.end() : end]
        if len(inside) > 2 and inside[0] == inside[-1] == " " and inside.strip():
            inside = inside[1:-1]
        self._add(Span(inside, _joined(self._style, CYAN)))
        return end + len(run)

    def _link(self, place: int) -> int:
        hit = LINK.match(self._text, place)
        if hit is None or self._depth >= DEEPEST:
            self._plain += self._text[place]
            return place + 1
        words, url = hit[1], hit[2]
        for span in _Reader(words or url, _joined(self._style, UNDERLINED), depth=self._depth + 1).spans():
            self._add(span)
        if words and url != words:
            self._add(Span(f" ({url})", _joined(self._style, DIM)))
        return hit.end()

    def _emphasis(self, place: int) -> int:
        for mark, style in MARKS:
            if self._text.startswith(mark, place) and mark not in self._in_vain and self._opens(place, mark):
                end = self._closing(place + len(mark), mark)
                if end > 0 and self._depth < DEEPEST:
                    inside = self._text[place + len(mark) : end]
                    for span in _Reader(inside, _joined(self._style, style), depth=self._depth + 1).spans():
                        self._add(span)
                    return end + len(mark)
                self._in_vain.add(mark)
        run = len(self._text) - place - len(self._text[place:].lstrip(self._text[place]))
        self._plain += self._text[place : place + run]
        return place + run

    def _opens(self, place: int, mark: str) -> bool:
        after = self._text[place + len(mark) : place + len(mark) + 1]
        before = self._text[place - 1 : place]
        return bool(after) and not after.isspace() and after != mark[0] and not (mark[0] == "_" and before.isalnum())

    def _closing(self, start: int, mark: str) -> int:
        """Where the mark is closed; -1 if it is not. Code and escapes are passed over."""
        place = start
        while (place := self._text.find(mark, place)) >= 0:
            run = _run(self._text, place)
            if place > start and (run == len(mark) or run == 3) and self._closes(place, run, mark, start):
                return place + run - len(mark)
            place += run
        return -1

    def _closes(self, place: int, run: int, mark: str, start: int) -> bool:
        before, after = self._text[place - 1], self._text[place + run : place + run + 1]
        if before.isspace() or before == "\\" or (mark[0] == "_" and after.isalnum()):
            return False
        return not _inside_code(self._text, start, place)

    def _add(self, span: Span) -> None:
        self._flush()
        self._found.append(span)

    def _flush(self) -> None:
        if self._plain:
            self._found.append(Span(self._plain, self._style))
            self._plain = ""


def _run(text: str, place: int) -> int:
    end = place
    while end < len(text) and text[end] == text[place]:
        end += 1
    return end - place


def _closing_ticks(text: str, start: int, run: str) -> int:
    return next((hit.start() for hit in TICKS.finditer(text, start) if hit[0] == run), -1)


def _inside_code(text: str, start: int, place: int) -> bool:
    """Whether `place` lies between two backticks of this text."""
    return text.count("`", start, place) % 2 == 1 and "`" in text[place:]


def _joined(outer: str, inner: str) -> str:
    return f"{outer};{inner}" if outer else inner
