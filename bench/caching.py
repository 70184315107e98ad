"""What a provider's prompt cache would bill for agent runs, under Evener's policy and under four others.

The cache is simulated on the bytes that our encoder writes: it knows prefixes of blocks, at most four marks a request, looks
back 20 blocks from each mark, and forgets after five minutes without use. Tokens cost 1 when they are new, 1.25 when they are
written to the cache, 0.1 when they are read from it. The runs are generated from a seed: results of many sizes, screenshots,
reasoning, and pauses of which some outlast the cache; and those of the recorded traffic, if it is there, that have tool loops.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from random import Random

import msgspec
from msgspec.structs import replace

from evener.context.accounting import Account, count_frame, rates_of, size_messages
from evener.context.compaction import WORTH, ask_for_summary, plan_compaction
from evener.context.eviction import plan_eviction
from evener.context.gate import ContextRules, RoomFacts, WindowGate, gate_of
from evener.context.view import apply_edit
from evener.events import Compacted, Evicted
from evener.transcript import Message, Origin, Transcript
from evener.transcript.ask import Ask, Cache, CacheMode, ToolSpec
from evener.transcript.blocks import Block, ImageBlock, Inline, ReasoningBlock, TextBlock, ToolCall, ToolResult
from evener.wire import CODECS, Quirks

__all__ = ["POLICIES", "PrefixCache", "bill", "generated", "main", "recorded"]

WINDOW, RUNS = 40_000, 50
WRITE, READ, TTL, MARKS, BACK = 1.25, 0.1, 300.0, 4, 20
OUTPUT = 5.0
"""What a token of a summary costs, in new ones."""
TOKENS_A_BYTE = 0.29
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WIRE = "anthropic_messages"
TARGET = Origin(WIRE, "anthropic", model="claude")
RATES = rates_of(WIRE)
RULES = ContextRules(window=WINDOW)
TOOLS = tuple(ToolSpec(name, f"{name} something. " * 10) for name in ("fetch", "look", "write", "search"))
SYSTEM = "You are a careful worker. " * 100


class Turn(msgspec.Struct, frozen=True):
    """What is added to a conversation, and the seconds that pass before the request."""

    messages: tuple[Message, ...]
    pause: float = 5.0


AgentRun = tuple[Turn, ...]


class PrefixCache:
    """A provider's prompt cache. `ask` returns what a request is billed, in tokens at the price of new ones."""

    def __init__(self) -> None:
        self._seen: dict[bytes, float] = {}  # a prefix, and when it was used last
        self.now = 0.0

    def ask(self, body: bytes) -> float:
        """Bill a request: read the longest known prefix that a mark reaches, write up to the last mark, pay the rest."""
        blocks = list(_blocks(json.loads(body)))
        prefixes: list[tuple[bytes, float]] = []
        digest, tokens = b"", 0.0
        for text, size, _ in blocks:
            digest = blake2b(text, digest_size=16, key=digest).digest()
            tokens += size
            prefixes.append((digest, tokens))
        marks = [place for place, (_, _, marked) in enumerate(blocks) if marked][-MARKS:]
        known = max((found for mark in marks for found in self._reach(prefixes, mark)), default=-1)
        read = prefixes[known][1] if known >= 0 else 0.0
        for mark in marks:
            self._seen[prefixes[mark][0]] = self.now
        if known >= 0:
            self._seen[prefixes[known][0]] = self.now
        written = max(prefixes[marks[-1]][1] - read, 0.0) if marks else 0.0
        return read * READ + written * WRITE + (tokens - read - written)

    def _reach(self, prefixes: Sequence[tuple[bytes, float]], mark: int) -> Iterator[int]:
        for place in range(mark, max(mark - BACK, -1), -1):
            if self.now - self._seen.get(prefixes[place][0], -TTL - 1) <= TTL:
                yield place
                return


def _blocks(body: dict[str, object]) -> Iterator[tuple[bytes, float, bool]]:
    """Yield each block in the order of the prefix: its bytes without a mark, its tokens, and whether it is marked."""
    auto = "cache_control" in body
    found: list[object] = [*_listed(body.get("tools")), *_listed(body.get("system"))]
    for message in _listed(body.get("messages")):
        assert isinstance(message, dict)
        found += [{"role": message["role"], "block": block} for block in _listed(message["content"])]
    for place, block in enumerate(found):
        assert isinstance(block, dict)
        own = block.get("block", block)
        marked = isinstance(own, dict) and "cache_control" in own
        text = json.dumps(_unmarked(block)).encode()
        pictures = text.count(b'"image"')
        yield text, len(text) * TOKENS_A_BYTE + pictures * RATES.image, marked or (auto and place == len(found) - 1)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [{"text": value}]


def _unmarked(value: object) -> object:
    match value:
        case dict():
            return {name: _unmarked(one) for name, one in value.items() if name != "cache_control"}
        case list():
            return [_unmarked(one) for one in value]
        case _:
            return value


# Policies: from the conversation so far and what is new, to what is sent.


class Policy(msgspec.Struct):
    """How a conversation is kept and marked. `shorten` is called with each turn; its outcome is what the next turn adds to, and
    what it cost to come to that."""

    mode: CacheMode
    shorten: Callable[[Transcript, float], tuple[Transcript, float]]


def _gate() -> WindowGate:
    return gate_of(RULES, RoomFacts(WINDOW, 4096), 4096)


def _total(talk: Transcript) -> float:
    return Account(RATES, count_frame(talk, TOOLS, None, RATES).total).after(talk, TARGET).total


def _by_evener(talk: Transcript, pause: float) -> tuple[Transcript, float]:
    """At the gate, or when the cache is gone anyway: in one step down to the target. Where that is not enough, a summary stands
    for older exchanges: its request is billed, too, at the price of new tokens, and its answer."""
    gate, total = _gate(), _total(talk)
    cold = pause > RULES.idle
    if total <= (gate.target if cold else gate.gate):
        return talk, 0.0
    plan = plan_eviction(talk.messages, total - gate.target, rates=RATES, rules=RULES, tail=gate.target / 2)
    if plan.cuts and (plan.saved >= gate.most * WORTH or total > gate.gate):
        talk = apply_edit(talk, Evicted(at=0.0, id="e", cuts=plan.cuts, cause="gate"))
    wanted = plan_compaction(talk.messages, gate.most, rates=RATES) if total - plan.saved > gate.gate else None
    if wanted is None:
        return (talk, 0.0) if total - plan.saved <= gate.most else (_dropped(talk, gate.target), 0.0)
    kept = set(wanted.kept)
    asked = ask_for_summary(wanted.dropped, [one for one in talk if one.id in kept])
    made = Compacted(at=0.0, id="c", summary=_message("user", TextBlock("found " * 400)), until=wanted.until, kept=wanted.kept)
    summed = size_messages((made.summary,), RATES)
    return apply_edit(talk, made), _total(asked) + summed * OUTPUT


def _dropped(talk: Transcript, most: float) -> Transcript:
    """Drop the oldest exchanges until it fits; the first prompt stays."""
    messages, total = talk.messages, _total(talk)
    first, rest = messages[0], list(messages[1:])
    while total > most and sum(one.role == "assistant" for one in rest) > 1:
        place = next(number for number in range(1, len(rest)) if rest[number].role == "assistant")
        total -= size_messages(rest[:place], RATES)
        rest = rest[place:]
    return Transcript((first, *rest), talk.system_blocks)


def _strip(talk: Transcript, _pause: float) -> tuple[Transcript, float]:
    plan = plan_eviction(talk.messages, float("inf"), rates=RATES, rules=RULES)
    talk = apply_edit(talk, Evicted(at=0.0, id="e", cuts=plan.cuts, cause="gate")) if plan.cuts else talk
    return _dropped(talk, _gate().most), 0.0


def _slide(talk: Transcript, _pause: float) -> tuple[Transcript, float]:
    return _dropped(talk, _gate().gate), 0.0


POLICIES: dict[str, Policy] = {
    "evener": Policy("moving", _by_evener),
    "naive: no marks": Policy("off", _slide),
    "sliding truncation": Policy("moving", _slide),
    "strip and evict every turn": Policy("moving", _strip),
    "automatic marks": Policy("provider", _slide),
}


def bill(run: AgentRun, policy: Policy) -> float:
    """Return what the requests of a run cost, in new tokens."""
    cache, talk, paid = PrefixCache(), Transcript((), SYSTEM), 0.0
    encoded = None
    for turn in run:
        cache.now += turn.pause
        talk, cost = policy.shorten(talk.extend(turn.messages), turn.pause)
        paid += cost
        ask = Ask(talk, TARGET, TOOLS, cache=Cache(policy.mode))
        encoded = CODECS[WIRE].encode(ask, Quirks(), encoded)
        paid += cache.ask(encoded.body)
    return paid


# Runs.


def generated(seed: int) -> AgentRun:
    """Return a run of an agent: prompts, calls, results of many sizes, screenshots, reasoning, pauses."""
    random = Random(seed)
    turns: list[Turn] = []
    number = 0
    for _ in range(random.randint(1, 3)):
        turns.append(Turn((_message("user", TextBlock("Find it. " * random.randint(5, 60))),), random.choice((10, 60, 400))))
        for _ in range(random.randint(8, 40)):
            number += 1
            turns.append(Turn(_exchange(random, number), random.choice((2, 5, 5, 20, 60, 320))))
        turns[-1] = replace(turns[-1], messages=(*turns[-1].messages, _message("assistant", TextBlock("Here it is."))))
    return tuple(one for one in turns if one.messages[-1].role == "user")


def _exchange(random: Random, number: int) -> tuple[Message, Message]:
    said: list[Block] = [ReasoningBlock("I think so. " * random.randint(0, 60) + ".")] if random.random() < 0.5 else []
    said += [TextBlock(f"Step {number}."), ToolCall(f"c{number}", "fetch", f'{{"n":{number}}}')]
    size = int(min(random.lognormvariate(6.5, 1.6), 40_000))
    content: tuple[TextBlock | ImageBlock, ...] = (TextBlock("x y z " * (size // 6)),)
    if random.random() < 0.25:
        content = (TextBlock("a screen"), ImageBlock(Inline(IMAGE), "image/png"))
    return _message("assistant", *said), _message("user", ToolResult(f"c{number}", content))


def _message(role: str, *blocks: Block) -> Message:
    return Message(role, blocks, created_at=None)  # type: ignore[arg-type] # one of the two


def recorded(most: int) -> list[AgentRun]:
    """Return the longest recorded conversations with tool loops, turn by turn."""
    from bench.estimate import samples
    from tests.corpus import CORPUS

    found: list[AgentRun] = []
    for wire in CODECS if CORPUS is not None else ():
        talks = [one.ask.transcript for one in samples(wire) if one.before is not None and len(one.ask.transcript) > 4]
        found += [run for talk in talks if (run := _turns(talk))]
    return sorted(found, key=len, reverse=True)[:most]


def _turns(talk: Transcript) -> AgentRun:
    turns: list[Turn] = []
    waiting: list[Message] = []
    for message in talk:
        blocks = tuple(_plain(block) for block in message.blocks if not isinstance(block, ReasoningBlock))
        if message.role == "system" or not blocks:
            continue
        waiting.append(Message(message.role, blocks, created_at=None))
        if message.role == "user":
            turns.append(Turn(tuple(waiting)))
            waiting = []
    return tuple(turns)


def _plain(block: Block) -> Block:
    return replace(block, seal=None) if isinstance(block, TextBlock | ToolCall | ToolResult) else block


def main(seed: int, runs: int = RUNS) -> int:
    """Print what each policy is billed; 1 when Evener's is not the least in total."""
    known = recorded(runs // 5)
    tried = [*known, *(generated(seed + number) for number in range(runs - len(known)))]
    totals = {name: sum(bill(run, policy) for run in tried) for name, policy in POLICIES.items()}
    least = min(totals.values())
    print(f"{len(tried)} runs ({len(known)} recorded), {sum(map(len, tried))} requests, window {WINDOW:,} tokens, seed {seed}")
    print(f"{'policy':30}{'billed (million tokens)':>26}{'against evener':>18}")
    for name, total in sorted(totals.items(), key=lambda one: one[1]):
        print(f"{name:30}{total / 1e6:>26.3f}{total / totals['evener']:>17.2f}x")
    return 0 if totals["evener"] <= least else 1
