"""What the Chat Completions API, and the servers that imitate it, refuse with a 400. Pure and total.

Written from the wire sheet and the recordings, never from an encoder, so that it can judge one. What servers refuse beyond
OpenAI's rules, or let pass, is one record per server in `DIALECTS`.
"""

from evener.testing.check.chat.body import check
from evener.testing.check.chat.dialects import DIALECTS

__all__ = ["DIALECTS", "check"]
