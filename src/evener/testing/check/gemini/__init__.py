"""Rules of Google's generateContent, which answers a violation with a 400. Pure; no JSON value makes it raise.

Written from the wire sheet and the recordings, never from an encoder, so that it can judge one. The API reads JSON into
protocol buffers, and accepts what they accept: see `fields`.
"""

from evener.testing.check.gemini.body import check
from evener.testing.check.gemini.fields import PLATFORMS

__all__ = ["PLATFORMS", "check"]
