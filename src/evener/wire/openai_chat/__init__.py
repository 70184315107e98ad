"""OpenAI Chat Completions, and the dialects of those who speak it."""

from evener.wire.codec import Codec
from evener.wire.faults import fault
from evener.wire.openai_chat.decode import decode, decoder
from evener.wire.openai_chat.encode import encode
from evener.wire.openai_chat.parts import WIRE
from evener.wire.openai_chat.read import read_request

__all__ = ["CODEC"]

CODEC = Codec(WIRE, encode, decode, decoder, fault, read_request)
