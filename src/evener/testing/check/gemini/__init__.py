"""What Google's generateContent refuses with a 400. Pure and total.

Written from the wire sheet and the recordings, never from an encoder, so that it can judge one. The API reads JSON into
protocol buffers, which decides much of what is accepted: see `fields`.
"""

from evener.testing.check.gemini.body import check
from evener.testing.check.gemini.fields import PLATFORMS

__all__ = ["PLATFORMS", "check"]
