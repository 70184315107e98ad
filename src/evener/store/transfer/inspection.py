"""Checks the lines of an export one by one, and trusts nothing: form, order, digests, links, parents, checksum."""

from collections.abc import Iterator
from hashlib import sha256
from typing import cast

import msgspec

from evener.errors import BadValue, EvenerError
from evener.events import CallStarted, Event, Opened, decode_event, encode_event
from evener.store.integrity.digests import digest_of, link, origin_of
from evener.store.redaction import Funnel
from evener.store.sqlite.catalog import label_of
from evener.store.subagent_logs import threads_inside
from evener.store.tombstones import blanked
from evener.store.transfer.cargo import Blob, CargoBranch, CargoEvent, CargoThread
from evener.store.transfer.lines import VERSION, BlobLine, End, EventLine, Line, ThreadLine, bad, read, written

IN_MEMORY = 64 << 20

_lines = msgspec.json.Decoder(Line)


class Spool:
    """Lines that were checked. Read as often as is asked, from any thread, one reader at a time. Close it."""

    def __init__(self, *, on_disk: bool) -> None:
        from tempfile import SpooledTemporaryFile

        self._file = SpooledTemporaryFile(max_size=IN_MEMORY if on_disk else 0)  # noqa: SIM115 - closed by `close`
        self._places: dict[str, tuple[int, int]] = {}
        self._blobs: list[int] = []
        self._end = 0

    def add(self, line: EventLine | BlobLine) -> None:
        """Keep a line."""
        if isinstance(line, EventLine):
            start, count = self._places.get(line.log, (self._end, 0))
            self._places[line.log] = (start, count + 1)
        else:
            self._blobs.append(self._end)
        self._end += self._file.write(written(line))

    def records(self, log: str) -> Iterator[CargoEvent]:
        """Yield the events of one branch, in order."""
        place, count = self._places[log]
        for _ in range(count):
            line, place = self._at(place)
            yield cast(EventLine, line).record

    def blobs(self) -> Iterator[Blob]:
        """Yield the blobs, each put together from its parts."""
        content = bytearray()
        for place in self._blobs:
            line = cast(BlobLine, self._at(place)[0])
            content += line.content
            if line.last:
                yield Blob(sha256(content).hexdigest(), bytes(content))
                content = bytearray()

    def close(self) -> None:
        """Let go of everything."""
        self._file.close()

    def _at(self, place: int) -> tuple[Line, int]:
        self._file.seek(place)
        data = self._file.readline()
        line: Line = _lines.decode(data)
        return line, place + len(data)


HASH = 32


class ThreadSection(msgspec.Struct, frozen=True):
    """One thread of an export, and the hash of its lines."""

    whole: CargoThread
    digest: bytes


class Inspection:
    """What is known after the lines so far. `cargo` contains them; `last` is the last line unchanged."""

    def __init__(self, cargo: Spool) -> None:
        self.cargo = cargo
        self.last = b""
        self._number = 0
        self._digest = sha256()
        self._thread: ThreadLine | None = None
        self._section = sha256()  # of the lines of the present thread
        self._past: list[ThreadSection] = []
        self._logs: dict[str, str] = {}  # the thread of each log
        self._starts: dict[str, list[tuple[str, str]]] = {}  # by thread: the logs and keys of calls
        self._branches: dict[str, CargoBranch] = {}
        self._chains: dict[str, bytearray] = {}  # the links of each log, one after the other
        self._present: CargoBranch | None = None
        self._blobs: set[str] = set()
        self._blob, self._content = "", sha256()
        self._ended = False

    def add(self, data: bytes) -> None:
        """Look at one more line."""
        self._number += 1
        if self._ended:
            raise self._bad("there is a line after the end")
        match read(data, self._number):
            case ThreadLine() as line if not self._blobs:
                self._open(line)
            case CargoBranch() as branch if self._thread and not self._blobs:
                self._begin(branch)
            case EventLine() as line if self._present and line.log == self._present.log and not self._blobs:
                self._check_event(self._present, line.record)
                self.cargo.add(line)
            case BlobLine() as line if self._starts and line.digest not in self._blobs - {self._blob}:
                self._check_blob(line)
                self.cargo.add(line)
            case End() as line:
                self._finish(line)
            case line:
                raise self._bad(f"a line of kind {type(line).__name__} is not allowed here")
        self.last = data.rstrip(b"\r\n") + b"\n"
        self._digest.update(self.last)
        if not self._blobs:
            self._section.update(self.last)

    def sections(self) -> list[ThreadSection]:
        """Return the thread and those of the agents inside it, when the last line was right."""
        if not self._ended:
            raise self._bad("the end of the file is missing")
        return self._past

    def _open(self, line: ThreadLine) -> None:
        self._close()
        if line.version != VERSION or line.thread in self._starts:
            raise self._bad("the thread has another version than the first thread, or occurs a second time")
        self._check_labels(line)
        self._thread, self._section = line, sha256()
        self._starts[line.thread] = []

    def _close(self) -> None:
        """Check that the present thread, if there is one, is complete, and keep it."""
        thread = self._thread
        if thread is None:
            return
        self._check_complete()
        if thread.head not in self._branches:
            raise self._bad("the thread is not complete")
        branches = tuple(self._branches.values())
        whole = CargoThread(thread.thread, thread.head, thread.title, thread.tags, branches)
        self._past.append(ThreadSection(whole, self._section.digest()))
        self._thread, self._present, self._branches, self._chains = None, None, {}, {}

    def _begin(self, branch: CargoBranch) -> None:
        self._check_complete()
        if branch.log in self._logs:
            raise self._bad(f"the log {branch.log!r} begins a second time")
        if branch.parent and self._hash(branch.parent, branch.base) != branch.parent_hash:
            raise self._bad(f"event {branch.base} of the parent {branch.parent!r} is not there or has another hash")
        if not branch.parent and (branch.base or branch.parent_hash):
            raise self._bad("the root has no parent, but names events before it")
        if not branch.parent and (self._branches or self._thread is None or branch.log != self._thread.thread):
            raise self._bad("a thread has one root, which has the id of the thread and comes first")
        if branch.length <= branch.base:
            raise self._bad(f"the log {branch.log!r} has no events of its own")
        self._branches[branch.log] = self._present = branch
        self._logs[branch.log] = self._thread.thread if self._thread else ""
        self._chains[branch.log] = bytearray()

    def _check_event(self, branch: CargoBranch, record: CargoEvent) -> None:
        chain = self._chains[branch.log]
        if record.seq != branch.base + len(chain) // HASH + 1 or record.seq > branch.length:
            raise self._bad(f"event {record.seq} is not allowed here")
        event = self._decode(record)
        if str(type(event).__struct_config__.tag) != record.kind or event.at != record.at:
            raise self._bad("the payload is of another kind or time than the line says")
        if record.seq == branch.base + 1:
            self._check_opening(branch, event)
        if isinstance(event, CallStarted):
            self._starts[self._logs[branch.log]].append((branch.log, event.key))
        if record.seq == branch.length and record.at != branch.changed:
            raise self._bad("the last event of the log has another time than the line of the log says")
        if branch.erased is not None and record.erased is None:
            raise self._bad("the log is marked as erased, but this event is not")
        if record.erased is None and digest_of(record.payload) != record.digest:
            raise self._bad("the payload has another digest than the line says")
        if record.erased is not None and encode_event(blanked(event)) != record.payload:
            raise self._bad("the event is marked as erased, but still has content")
        before = bytes(chain[-HASH:]) or origin_of(branch.log)
        wanted = self._link(before, record)
        if wanted != record.chain:
            raise self._bad("the event is not linked to the one before it")
        chain += wanted

    def _check_opening(self, branch: CargoBranch, event: Event) -> None:
        thread = self._thread.thread if self._thread else ""
        said = event if isinstance(event, Opened) else Opened(at=event.at, thread=branch.log)
        wanted = (thread, branch.harness, branch.began, branch.parent, branch.base, branch.parent_hash)
        if (said.thread, said.harness, said.at, said.parent, said.parent_seq, said.parent_hash) != wanted:
            raise self._bad("the first event of the log contradicts the lines before it")

    def _check_labels(self, line: ThreadLine) -> None:
        try:
            label_of(line.title, line.tags, Funnel())
        except BadValue as error:
            raise self._bad(str(error)) from None

    def _check_blob(self, line: BlobLine) -> None:
        self._close()
        if self._blob and line.digest != self._blob:
            raise self._bad("a blob begins before the last part of the one before it")
        self._blobs.add(line.digest)
        self._blob = line.digest
        self._content.update(line.content)
        if line.last:
            if self._content.hexdigest() != line.digest:
                raise self._bad("the blob has another digest than its name")
            self._blob, self._content = "", sha256()

    def _finish(self, line: End) -> None:
        self._close()
        if self._blob or not self._past:
            raise self._bad("the thread is not complete")
        first, *others = self._starts
        if set(others) - set(threads_inside(first, lambda thread: self._starts[thread], lambda log: self._logs.get(log, ""))):
            raise self._bad("it contains a thread that no call of the first thread began")
        if (line.lines, line.sha256) != (self._number - 1, self._digest.hexdigest()):
            raise self._bad("the lines before the end are not those that were written")
        self._ended = True

    def _check_complete(self) -> None:
        """Check that the branch before this line has all its events."""
        branch = self._present
        if branch is not None and branch.base + len(self._chains[branch.log]) // HASH != branch.length:
            raise self._bad(f"events of the log {branch.log!r} are missing before it")

    def _hash(self, log: str, seq: int) -> str:
        branch = self._branches.get(log)
        if branch is None or not branch.base < seq <= branch.length:
            return ""
        place = (seq - branch.base - 1) * HASH
        return self._chains[log][place : place + HASH].hex()

    def _decode(self, record: CargoEvent) -> Event:
        try:
            return decode_event(record.payload, record.version)
        except EvenerError as error:
            raise self._bad(str(error)) from None

    def _link(self, before: bytes, record: CargoEvent) -> bytes:
        try:
            return link(
                before, record.digest,
                seq=record.seq, version=record.version, at=record.at, kind=record.kind, rule=record.rule,
            )  # fmt: skip
        except (EvenerError, ArithmeticError, ValueError) as error:
            raise self._bad(str(error)) from None

    def _bad(self, why: str) -> EvenerError:
        return bad(self._number, why)
