"""`python -m bench threads`: one conversation hops across all wires and the embedded model, with forks, rollbacks and kills.

Four strict fake servers that enforce prefix-bound thinking, real processes that are killed with SIGKILL, a real SQLite file. No
request may be refused, whatever a request lacks must be a listed loss, and afterwards every branch verifies and replays.
"""

import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from bench.thread_check import Asked, Said, asked, kept, lost_in_silence, started_twice
from bench.thread_life import LOCAL, Command, Told
from bench.thread_stage import MODELS, Dead, Stage, Worker, kill
from evener import events as ev
from evener.events import encode_events
from evener.model.media import Media
from evener.replay import replay
from evener.store.sqlite.store import SqliteStore
from evener.transcript.ask import StateMode
from evener.transcript.loss import Loss

__all__ = ["Tally", "Walk", "main", "walk"]

MODES: tuple[StateMode, ...] = ("replay", "chain", "conversation")
SMALL = 4000
"""Characters of a conversation that the embedded model has room for."""


STATE = ("previous_response_id", "conversation")


class Tally(msgspec.Struct):
    """What a walk came to. `violations` is what should not have been; everything else is counted."""

    hops: int = 0
    kills: int = 0
    midway: int = 0
    forks: int = 0
    rollbacks: int = 0
    forgotten: int = 0
    expired: int = 0
    local: int = 0
    requests: int = 0
    refused: int = 0
    branches: int = 0
    events: int = 0
    answers: int = 0
    losses: int = 0
    resumed: int = 0
    modes: dict[str, int] = {}
    wires: dict[str, int] = {}
    lost: dict[str, int] = {}
    kept: dict[str, int] = {}
    violations: list[str] = []


class Walk:
    """One conversation under way."""

    def __init__(self, folder: Path, seed: int, *, local: int, kills: int, hops: int) -> None:
        self.tally = Tally(modes={}, wires={}, lost={}, kept={}, violations=[])
        self._seed = seed
        self._folder = folder
        self._path = folder / "threads.db"
        self.stage = Stage(seed)
        self._worker = Worker(self._path, folder)
        self._logs: list[str] = []
        self._here = Told()
        self._local = set(self._chance("local").sample(range(1, hops), k=min(local, hops - 1))) if local else set()
        self._deaths = set(self._chance("deaths").sample(range(2, hops), k=min(kills, hops - 2))) if kills else set()

    def go(self, hops: int) -> Tally:
        """Hop so often, then look at everything that is left."""
        servers = self.stage.servers
        for server in servers.values():
            server.start()
        try:
            for hop in range(hops):
                self._wander(hop)
                self._hop(hop)
            self._worker.close()
            self.tally.requests = len(self.stage.heard)
            self.complain()
            asyncio.run(self._examine())
        finally:
            for server in servers.values():
                server.close()
        return self.tally

    def complain(self) -> None:
        """Count what was refused."""
        for wire, server in self.stage.servers.items():
            for one in server.rejected:
                if self.tally.forgotten and all(hit.path in STATE and "not found" in hit.message for hit in one.violations):
                    self.tally.expired += 1  # as it was made to be: the same turn went on with the whole conversation
                    continue
                self.tally.refused += 1
                told = "; ".join(f"{hit.path}: {hit.message}" for hit in one.violations)
                self.tally.violations.append(f"refused by {wire}: {told}"[:600])

    def _chance(self, what: str, hop: int = 0) -> Random:
        """The dice for one thing: what they show does not depend on when a process died before."""
        return Random(f"{self._seed} {what} {hop}")

    # Between two hops.

    def _wander(self, hop: int) -> None:
        """Now and then to another branch: a new one, one from before, or back by some turns."""
        chance = self._chance("wander", hop)
        draw, forgets = chance.random(), chance.random() < 0.06
        if not self._here.log:
            return
        if hop in self._local and self._here.letters > SMALL:
            self._obey(Command(do="fork", log=self._logs[0], at=chance.randint(1, 3)), count="forks")
        elif draw < 0.12:
            at = chance.choice((None, chance.randint(1, max(self._here.events, 1))))
            self._obey(Command(do="fork", log=self._here.log, at=at), count="forks")
        elif draw < 0.18:
            self._obey(Command(do="rollback", log=self._here.log, turns=chance.randint(1, 2)), count="rollbacks")
        elif draw < 0.26:
            self._obey(Command(do="stand", log=chance.choice(self._logs)))
        if forgets:
            self.stage.servers["openai_responses"].forget()
            self.tally.forgotten += 1

    def _obey(self, command: Command, *, count: str = "") -> None:
        told = self._worker.tell(command)
        if "no turn" in told.error or "turns" in told.error:
            return  # there was nothing to take back
        self._arrive(command, told)
        if count and not told.error:
            setattr(self.tally, count, getattr(self.tally, count) + 1)

    def _arrive(self, command: Command, told: Told) -> None:
        if told.error:
            self.tally.violations.append(f"{command}: {told.error}"[:600])
            return
        self._here = told
        if told.log not in self._logs:
            self._logs.append(told.log)

    # A hop.

    def _hop(self, hop: int) -> None:
        command = self._command(hop)
        self.tally.hops += 1
        if hop in self._deaths and command.model != LOCAL:
            self._deadly(command, hop)
            return
        self._arrive(command, self._worker.tell(command))

    def _command(self, hop: int) -> Command:
        chance, here = self._chance("hop", hop), self._here
        wire, drawn = chance.choice(tuple(MODELS)), chance.choice(MODES)
        model, url = chance.choice(MODELS[wire]), self.stage.servers[wire].url
        mode: StateMode = drawn if wire == "openai_responses" else "replay"
        requests = 1 if chance.random() < 0.2 else 50  # now and then so few that the run stops in the middle of its work
        if hop in self._local and here.letters <= SMALL:
            wire, model, url, mode, requests = LOCAL, LOCAL, "", "replay", 2
            self.tally.local += 1
        self.tally.wires[wire] = self.tally.wires.get(wire, 0) + 1
        self.tally.modes[mode] = self.tally.modes.get(mode, 0) + 1
        resumes = here.busy or here.stop in ("limit", "cancelled", "tool_retries", "provider_error")
        if resumes and chance.random() < 0.8:
            self.tally.resumed += 1
            return Command(do="resume", log=here.log, model=model, url=url, mode=mode, requests=requests)
        return Command(
            do="run", log=here.log, model=model, url=url, mode=mode, requests=requests,
            prompt=f"This is hop {hop}: {chance.getrandbits(32):08x}.",
            image=chance.randint(1, 1000) if chance.random() < 0.15 else 0,
            steer=f"By the way, {chance.getrandbits(32):08x}." if chance.random() < 0.1 else "",
        )  # fmt: skip

    def _deadly(self, command: Command, hop: int) -> None:
        """The process is killed in the middle, and another one goes on from what it left."""
        chance = self._chance("death", hop)
        self.stage.strike(self._worker.id, chance.choice((0.0, 0.0, 0.002, 0.01, 0.03)) * chance.random())
        try:
            self._arrive(command, self._worker.tell(command))
        except Dead:
            self.tally.midway += 1
        self.stage.calm()
        kill(self._worker.id)
        self._worker.close()
        self.tally.kills += 1
        self._worker = Worker(self._path, self._folder)
        log = command.log or self._here.log
        if log:
            self._arrive(command, self._worker.tell(Command(do="stand", log=log)))

    # Afterwards.

    async def _examine(self) -> None:
        tally, store = self.tally, SqliteStore(self._path)
        try:
            tally.violations += [f"verify: {one}" for one in await store.verify() if one.damage]
            seen: set[str] = set()
            for summary in await store.logs():
                events = await store.read(summary.log)
                tally.branches += 1
                tally.events += summary.events
                tally.violations += [f"{summary.log}: pay was started twice: {key}" for key in started_twice(events, "pay")]
                await self._account(store, events, seen)
                await self._replay(events, summary.log)
        finally:
            await store.aclose()

    async def _account(self, store: SqliteStore, events: Sequence[ev.Event], seen: set[str]) -> None:
        """Every answer on this path that was not looked at on another."""
        media = Media(store.put_blob, store.get_blob)
        bodies = sorted(self._folder.glob("local-*.json"))
        for one in asked(events):
            message = one.reply.message
            if message.id in seen:
                continue
            seen.add(message.id)
            self.tally.answers += 1
            self._count(one.reply.losses)
            whole = msgspec.structs.replace(one, transcript=await media.inline(one.transcript, {}, remote=False))
            if message.origin is not None and message.origin.provider == "local":
                self._compare_local(whole, bodies)
            else:
                self._compare(whole)

    def _compare(self, one: Asked) -> None:
        text = one.reply.message.text
        mark = text.partition("]]")[0] + "]]"
        heard = self.stage.heard.get(mark)
        if heard is None:
            self.tally.violations.append(f"no server gave the answer {text!r:.100}")
            return
        said = Said(heard.body, heard.held)
        self.tally.kept = dict(Counter(self.tally.kept) + kept(one.transcript, said))
        missing = lost_in_silence(one.transcript, said, one.losses)
        self.tally.violations += [f"{mark} lost in silence: {text}" for text in missing]

    def _compare_local(self, one: Asked, bodies: Sequence[Path]) -> None:
        """The embedded model marks nothing: its request is one that holds what was said last."""
        found = [lost_in_silence(one.transcript, Said(json.loads(body.read_bytes())), one.losses) for body in bodies]
        if all(found):
            fewest = min(found, key=len, default=["nothing was sent"])
            self.tally.violations += [f"{LOCAL} lost in silence: {text}" for text in fewest]

    def _count(self, losses: Sequence[Loss]) -> None:
        self.tally.losses += len(losses)
        kinds = Counter(f"{loss.kind} {loss.what}" for loss in losses)
        self.tally.lost = dict(Counter(self.tally.lost) + kinds)

    async def _replay(self, events: Sequence[ev.Event], log: str) -> None:
        found = await replay(events, log=log)
        self.tally.violations += [f"{log} replayed: {one}" for one in found.differences[:3]]
        if found.ok and encode_events(found.events) != encode_events(events):
            self.tally.violations.append(f"{log} replayed: other bytes")


def walk(hops: int, seed: int, folder: Path, *, kills: int = 0, local: int = 0) -> Tally:
    """One conversation over so many hops, so many of them deadly and so many with the embedded model."""
    return Walk(folder, seed, local=local, kills=kills, hops=hops).go(hops)


def main(walks: int, seed: int, *, hops: int = 200) -> int:
    """Walk so often; 1 when anything was refused, lost in silence or did not replay."""
    bad = 0
    for number in range(walks):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            tally = walk(hops, seed + number, Path(folder), kills=hops // 10, local=hops // 25)
        print(f"walk {seed + number}: {time.monotonic() - began:.0f} s")
        for name in (field.name for field in msgspec.structs.fields(Tally) if field.type is int):
            print(f"  {name:10} {getattr(tally, name):>8,}")
        for name, counted in (("wires", tally.wires), ("modes", tally.modes), ("kept", tally.kept), ("lost", tally.lost)):
            print(f"  {name:10} {', '.join(f'{key} {count}' for key, count in sorted(counted.items()))}")
        for text in tally.violations[:20]:
            print(f"  VIOLATION  {text}")
        bad += len(tally.violations)
    print(f"{walks} walks of {hops} hops: {bad} violations")
    return 1 if bad else 0
