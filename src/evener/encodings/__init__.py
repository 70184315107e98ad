"""How tools reach a model: natively, in a constrained JSON answer, as tags, or as Thought and Action. Pure.

Natively, tools that a model was trained on go out in its maker's form, and hosted tools as their wire declares them.

`prepare` fits an ask to what its model can do, `reader` turns the answer's text back into calls. A codec sees only what it
could see anyway: an ask.
"""

from evener.encodings.forms import output_text
from evener.encodings.own_tools import OwnReader
from evener.encodings.prepare import prepare
from evener.encodings.prepared import EncodingName, Prepared
from evener.encodings.reader import Reader, reader

__all__ = ["EncodingName", "OwnReader", "Prepared", "Reader", "output_text", "prepare", "reader"]
