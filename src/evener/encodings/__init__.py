"""How tools reach a model: natively, in a constrained JSON answer, as tags, or as Thought and Action. Pure.

`prepare` fits an ask to what its model can do, `reader` turns the answer's text back into calls. A codec sees only what it
could see anyway: an ask.
"""

from evener.encodings.forms import output_text
from evener.encodings.prepare import prepare
from evener.encodings.prepared import EncodingName, Prepared
from evener.encodings.reader import Reader, reader

__all__ = ["EncodingName", "Prepared", "Reader", "output_text", "prepare", "reader"]
