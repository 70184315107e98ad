"""The wires: pure codecs between values and bytes. `CODECS` is the registry; a new wire is one folder and one line here."""

from evener.wire.anthropic_messages import CODEC as ANTHROPIC_MESSAGES
from evener.wire.assembler import Assembler, assemble
from evener.wire.codec import Codec, Decoder, Encoded, moved
from evener.wire.gemini import CODEC as GEMINI
from evener.wire.openai_chat import CODEC as OPENAI_CHAT
from evener.wire.openai_responses import CODEC as OPENAI_RESPONSES
from evener.wire.quirks import Quirks
from evener.wire.request import restored

__all__ = ["CODECS", "Assembler", "Codec", "Decoder", "Encoded", "Quirks", "assemble", "moved", "restored"]

CODECS: dict[str, Codec] = {codec.wire: codec for codec in (ANTHROPIC_MESSAGES, OPENAI_RESPONSES, OPENAI_CHAT, GEMINI)}
