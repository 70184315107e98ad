"""When a conversation is too long for its model, and how much must go. Pure.

The gate lies below the window: what is reserved for the answer is taken off first. Above the gate a conversation is shortened
down to `target`, not just below the gate, so that the provider's cached prefix breaks rarely. What can never go (the system
prompt, the tools, the user's prompts, pinned messages and the newest exchange) is the floor: a gate that is not above it
cannot be passed, and that is said instead of tried over and over.
"""

from typing import Literal

import msgspec

from evener.errors import BadValue

LEAST_ROOM = 1024
"""Tokens: a smaller window cannot hold a conversation."""


class ContextRules(msgspec.Struct, frozen=True, kw_only=True):
    """How long conversations are kept within a model's window.

    `gate` is the share of the room for input above which a conversation is shortened, `target` the share that it is shortened
    to. `screenshots` is how many pictures in tool results stay. A result of more than `verbose` characters may be taken out
    once it is older than the newest `tail` exchanges. `compact`: where that does not make enough room, a model writes a
    summary; `summarizer` is that model, empty for the one that is asked. `window` is in tokens and stands for the one in the
    model's row. `reserve` is what is kept free for the answer, where no `max_output_tokens` says it. After `idle` seconds
    without a request the provider's prompt cache has forgotten the conversation: a cut costs nothing then, so what is above the
    target is cut already; 0 waits for the gate in any case.

    `by_provider` are means of the provider that are used where the model's row has them: `compact`, it writes the summary, and
    what it hands out stands for the older messages; `edit`, it also shortens conversations on its side, at the gate, and ours
    only at the end of the room. `diagnose`: requests ask the provider why its prompt cache was missed, and a disagreement with
    what was expected is a warning.
    """

    gate: float = 0.8
    target: float = 0.5
    screenshots: int = 3
    verbose: int = 2_000
    tail: int = 2
    compact: bool = True
    summarizer: str = ""
    window: int = 0
    reserve: int = 0
    idle: float = 300.0
    by_provider: Literal["", "compact", "edit"] = ""
    diagnose: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.target < self.gate <= 1:
            raise BadValue(
                f"ContextRules: target and gate are {self.target} and {self.gate}; 0 < target < gate <= 1 must hold."
            )
        if min(self.screenshots, self.verbose, self.window, self.reserve, self.idle) < 0 or self.tail < 1:
            raise BadValue(
                "ContextRules: screenshots, verbose, window, reserve and idle must be 0 or more, and tail 1 or more."
            )
        if self.by_provider not in ("", "compact", "edit"):
            raise BadValue(f"ContextRules: by_provider is {self.by_provider!r}; it must be empty, 'compact' or 'edit'.")


class RoomFacts(msgspec.Struct, frozen=True):
    """What the row of a model says of its window. `window` is in tokens; 0: it is not known.

    `default_output` and `max_output`: tokens of an answer. `prefix_bound`: a seal is dead when anything before it has changed.
    `counts_reasoning`: hidden reasoning counts in later prompts; None is as the wire does. `cuts_prompts`: its server cuts
    what is too long without a word. `edits`: the provider can be told to shorten conversations itself.
    """

    window: int = 0
    default_output: int = 0
    max_output: int = 0
    prefix_bound: bool = False
    counts_reasoning: bool | None = None
    cuts_prompts: bool = False
    edits: bool = False

    @property
    def is_trusted(self) -> bool:
        """True if the window is known, and a prompt that is too long for it is refused, not cut."""
        return self.window > 0 and not self.cuts_prompts


class WindowGate(msgspec.Struct, frozen=True):
    """In tokens: what a prompt may have at most, where it is shortened, and to what. All 0: the window is not known."""

    most: int = 0
    gate: int = 0
    target: int = 0
    window: int = 0
    reserved: int = 0

    def lowered(self, refused: float, limit: int) -> "WindowGate":
        """Return the gate after a provider refused a prompt of about `refused` tokens; `limit` is the limit that it named, if
        any.
        """
        most = min(self.most or refused, limit or refused, refused)
        share = (self.target / self.most) if self.most else 0.5
        return WindowGate(int(most * 0.9), int(most * 0.8), int(most * share), self.window, self.reserved)


def gate_of(rules: ContextRules, facts: RoomFacts, asked_output: int | None) -> WindowGate:
    """Return the gate for one request. `asked_output` is its output limit."""
    window = rules.window or facts.window
    if not window:
        return WindowGate()
    output = facts.default_output
    if asked_output and facts.max_output:
        asked_output = min(asked_output, facts.max_output)  # more than that is never sent
    reserved = asked_output or rules.reserve or min(facts.max_output or output, output, window // 4)
    room = max(window - reserved, min(LEAST_ROOM, window))
    return WindowGate(room, int(room * rules.gate), int(room * rules.target), window, reserved)
