"""Where the spans of live runs go: a file of JSON lines, and a collector if one is named. Never makes a run wait, never raises.

A run that ends hands its events to a bounded queue; another thread folds and writes them, several runs at a time if they
end soon after each other. What does not fit, or cannot be written, is dropped and counted. Three variables decide:
EVENER_TRACES (a folder, or `off`), EVENER_TRACE_CONTENT (`on` captures what was said), EVENER_OTLP (the address of one).
"""

import atexit
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import msgspec

from evener.errors import UsageError
from evener.events import Configured, Event, Prompted
from evener.observe.lines import SEQ, SpanLine, TraceSpan, encode_spans
from evener.observe.spans import fold_lines, fold_spans

WAITING = 1_000
"""Runs that may wait to be written; further ones are dropped."""
GATHERED = 0.1
"""Seconds in which runs gather after some were written: to wake a thread for each run costs more than to write it."""
LARGEST = 256 * 1024 * 1024
"""Bytes of one day's file, after which spans are dropped."""
KEPT = 30
"""Files, one a day."""
DAY = 86_400
"""Seconds."""
OPENED = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
AT_EXIT = 2.0
"""Seconds that a process gives to what waits when it ends."""
OFF = ("off", "0", "no", "false")
ON = ("on", "1", "yes", "true")


class TraceSettings(msgspec.Struct, frozen=True):
    """What is recorded, and where. An empty `folder` writes no file; an empty `otlp` sends nothing."""

    folder: str = ""
    content: bool = False
    otlp: str = ""

    @classmethod
    def of_environment(cls) -> "TraceSettings":
        """Return what the variables say."""
        given = os.environ.get("EVENER_TRACES", "").strip()
        content = os.environ.get("EVENER_TRACE_CONTENT", "").strip().lower() in ON
        folder = "" if given.lower() in OFF else given or _usual_folder()
        return cls(folder, content, os.environ.get("EVENER_OTLP", "").strip())

    @property
    def is_on(self) -> bool:
        """True if anything is recorded."""
        return bool(self.folder or self.otlp)


def _usual_folder() -> str:
    """Return the folder below the store's; an empty text where there is no home folder, since a run can do without."""
    from evener.store.sqlite.file import data_folder

    try:
        return str(data_folder() / "traces")
    except UsageError:
        return ""


class EndedRun(msgspec.Struct, frozen=True):
    """What is recorded of a run that came to a stop. `first` is the number of the first event, and `again` of the one with
    which the run went on if it had stopped before: what was recorded then is not recorded again.

    `thread` and `config` are what the log says before these events.
    """

    log: str
    agent: str
    events: Sequence[Event]
    first: int = 1
    again: int = 0
    thread: str = ""
    config: Configured | None = None


class SpanSink(Protocol):
    """A place for spans."""

    def send(self, spans: Sequence[TraceSpan]) -> None: ...

    def close(self, seconds: float) -> None: ...


class TraceRecorder:
    """The queue and its thread, which begins with the first run. `dropped` counts the runs that were not recorded."""

    def __init__(self, settings: TraceSettings | None = None, *, sinks: Sequence[SpanSink] = ()) -> None:
        self._settings = settings
        self._queue: SimpleQueue[EndedRun | None] = SimpleQueue()
        self._closing = threading.Lock()  # held until the recorder closes: to wait for an event costs ten times as much
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._sinks = list(sinks)
        self._lines = False  # nothing but the lines of files is wanted
        self.dropped = 0

    @property
    def settings(self) -> TraceSettings:
        """What is recorded; the variables are read with the first run."""
        if self._settings is None:
            self._settings = TraceSettings.of_environment()
        return self._settings

    def record(self, run: EndedRun) -> None:
        """Hand a run over. Returns at once."""
        if not (self.settings.is_on or self._sinks):
            return
        if self._thread is None:
            self._start()
        if self._queue.qsize() < WAITING:
            self._queue.put(run)
        else:
            self.dropped += 1

    def close(self, seconds: float = AT_EXIT) -> None:
        """Write what waits, for at most so long."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._queue.put(None)
            self._closing.release()
        thread.join(seconds)
        for sink in self._sinks:
            sink.close(seconds)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._closing = threading.Lock()
                self._closing.acquire()
                self._thread = threading.Thread(target=self._work, args=(self._closing,), name="evener-traces", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def _work(self, closing: threading.Lock) -> None:
        self._sinks = self._sinks or _open_sinks(self.settings)  # here: importing OpenTelemetry must not keep a run waiting
        self._lines = not self.settings.content and all(isinstance(sink, TraceFolder) for sink in self._sinks)
        while True:
            runs = [self._queue.get()]
            with suppress(Empty):  # which costs more than to ask
                while len(runs) < WAITING and not self._queue.empty():
                    runs.append(self._queue.get_nowait())
            self._write([run for run in runs if run is not None])
            if None in runs:
                return
            closing.acquire(timeout=GATHERED)

    def _write(self, runs: Sequence[EndedRun]) -> None:
        try:
            spans: Sequence[Any] = lines_of(runs) if self._lines else spans_of(runs, content=self.settings.content)
        except Exception:  # a run must not suffer from what is wrong with its trace
            self.dropped += len(runs)
            return
        for sink in self._sinks:
            try:
                sink.send(spans)
            except Exception:
                self.dropped += len(runs)


def spans_of(runs: Sequence[EndedRun], *, content: bool) -> list[TraceSpan]:
    """Return the spans of runs that have ended since each last stopped, redacted."""
    from evener.observe.export import redact_spans, trace_funnel

    found = [span for run in runs for span in fold_spans(**_arguments(run), content=content) if span.end]
    return list(redact_spans(found, trace_funnel(), content=content))


def lines_of(runs: Sequence[EndedRun]) -> Sequence[TraceSpan | SpanLine]:
    """Return the same without content, as lines where that is possible. With a text that may be secret it is not."""
    from evener.observe import export

    found: list[TraceSpan | SpanLine] = []
    others: list[TraceSpan] = []
    shared: dict[str, None] = {}
    ids: list[str] = []
    for run in runs:
        lines, spans, values, named = fold_lines(**_arguments(run))
        ended = [span for span in spans if span.end]
        found += sorted([*ended, *lines], key=SEQ)
        others += [span for span in ended if span.kind != "agent"]
        shared |= dict.fromkeys(values)
        ids += named
    texts = [*shared, *export.list_texts(others)] if others else list(shared)
    return spans_of(runs, content=False) if export.may_hold_secrets(texts, ids) else found


def _arguments(run: EndedRun) -> dict[str, Any]:
    """Return what the folds take of a run."""
    events, first = run.events, run.first
    if run.again:  # there may be events of earlier runs before it
        begins = max((place for place, event in enumerate(events) if isinstance(event, Prompted)), default=0)
        events, first = events[begins:], first + begins
    return {
        "events": events,
        "log": run.log,
        "agent": run.agent,
        "thread": run.thread,
        "config": run.config,
        "first": first,
        "again": run.again,
    }


def _open_sinks(settings: TraceSettings) -> list[SpanSink]:
    sinks: list[SpanSink] = [TraceFolder(Path(settings.folder))] if settings.folder else []
    if settings.otlp:
        from evener.observe.otlp import OtlpSink

        with suppress(Exception):  # it is not installed, or the address is none: `evener doctor` and `evener trace` say so
            sinks.append(OtlpSink(settings.otlp))
    return sinks


class TraceFolder:
    """A folder with one file of JSON lines a day, which only its user can read. Old ones are deleted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._day: int | None = None
        self._file = ""

    def send(self, spans: Sequence[TraceSpan | SpanLine]) -> None:
        """Append the spans in one write, so that lines of several processes do not mix."""
        if not spans:
            return
        day = int(spans[-1].end // DAY)
        if day != self._day:
            self._open_day(day)
        file = os.open(self._file, OPENED, 0o600)
        try:
            if os.fstat(file).st_size < LARGEST:
                os.write(file, encode_spans(spans))
        finally:
            os.close(file)

    def _open_day(self, day: int) -> None:
        """Make the folder, and remember the name of the file of a day. Old files are deleted."""
        name = datetime.fromtimestamp(day * DAY, UTC).strftime("%Y-%m-%d")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._day, self._file = day, str(self._folder / f"{name}.jsonl")
        for old in sorted(self._folder.glob("????-??-??.jsonl"))[:-KEPT]:
            old.unlink(missing_ok=True)

    def close(self, seconds: float) -> None:
        """Do nothing: no file is kept open."""


RECORDER = TraceRecorder()
"""That of this process."""


def record_run(
    log: str,
    agent: str,
    events: Sequence[Event],
    *,
    thread: str = "",
    config: Configured | None = None,
    first: int = 1,
    again: int = 0,
) -> None:
    """Record a run that came to a stop. Returns at once, and costs nothing where nothing is recorded."""
    if RECORDER.settings.is_on:
        RECORDER.record(EndedRun(log, agent, tuple(events), first, again, thread, config))
