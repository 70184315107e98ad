"""One reason why a provider would answer 400. A plain value: it never raises and decides nothing."""

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """One broken rule.

    `path` is written the way the provider writes it (`messages.0.content.1.id`, `input[3].call_id`; empty for the whole
    body), `rule` is a stable name to branch on, `message` says what the API would say or what was expected.
    """

    path: str
    rule: str
    message: str
