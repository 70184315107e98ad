"""Rules of the Chat Completions API and of the servers that imitate it. Pure; no JSON value makes it raise.

Written from the wire sheet and the recordings, never from an encoder, so that it can judge one. The differences of a server
from OpenAI's rules are one record in `DIALECTS`.
"""

from evener.testing.check.chat.body import check
from evener.testing.check.chat.dialects import DIALECTS

__all__ = ["DIALECTS", "check"]
