"""Models: `open_model("provider:model")`, then `stream(ask)` or `complete(ask)`."""

from evener.model.chain import Chain
from evener.model.model import Model
from evener.model.open import open_model
from evener.model.stream import Answer, Sent, Stream, Timing

__all__ = ["Answer", "Chain", "Model", "Sent", "Stream", "Timing", "open_model"]
