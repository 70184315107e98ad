"""Gemini generateContent and streamGenerateContent."""

from evener.wire.codec import Codec
from evener.wire.faults import fault
from evener.wire.gemini.decode import decode, decoder
from evener.wire.gemini.encode import encode
from evener.wire.gemini.parts import WIRE
from evener.wire.gemini.read import read_request

__all__ = ["CODEC"]

CODEC = Codec(WIRE, encode, decode, decoder, fault, read_request)
