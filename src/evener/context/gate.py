"""Decides when a conversation is too long for its model, and how much must be cut. Pure.

The gate is below the window: the tokens reserved for the answer are subtracted first. Above the gate, a conversation is
shortened to `target`, not just below the gate, so that the provider's cached prefix becomes invalid rarely. What is never
cut (the system prompt, the tools, the user's prompts, pinned messages and the newest exchange) is the floor: if the gate is
not above it, shortening cannot help, and that is reported instead of tried repeatedly.
"""

from typing import Literal

import msgspec

from evener.errors import BadValue

LEAST_ROOM = 1024
"""Tokens: a smaller window cannot hold a conversation."""


class ContextRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that keep conversations within a model's window.

    `gate` is the share of the room for input above which a conversation is shortened, `target` the share to which it is
    shortened. `screenshots` is the number of images in tool results that stay. A result of more than `verbose` characters
    may be cut once it is older than the newest `tail` exchanges. `compact`: if that does not make enough room, a model
    writes a summary; `summarizer` is that model, empty for the run's own. `window` is in tokens and overrides the one in the
    model's row. `reserve` is kept free for the answer, if `max_output_tokens` is not set. After `idle` seconds without a
    request, the provider's prompt cache has expired, so a cut costs nothing: then everything above the target is cut; 0
    waits for the gate in any case.

    `by_provider` are features of the provider that are used if the model's row has them: `compact`, it writes the summary,
    and its sealed summary replaces the older messages; `edit`, it also shortens conversations on its side, at the gate, and
    Evener acts only when the room is full. `diagnose`: requests ask the provider why its prompt cache was missed, and a
    difference from the expected reason is a warning.
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
    """What the row of a model says about its window. `window` is in tokens; 0: unknown.

    `default_output` and `max_output`: tokens of an answer. `prefix_bound`: a seal becomes invalid if anything before it
    changes. `counts_reasoning`: hidden reasoning counts in later prompts; None: as usual on the wire. `cuts_prompts`: its
    server silently cuts prompts that are too long. `edits`: the provider can shorten conversations itself.
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
    """In tokens: the most that a prompt may have, the size at which it is shortened, and the target. All 0: the window is
    unknown.
    """

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
