"""OpenAI Responses."""

from evener.wire.codec import Codec
from evener.wire.faults import fault
from evener.wire.openai_responses.decode import decode, decoder
from evener.wire.openai_responses.encode import WIRE, encode
from evener.wire.openai_responses.read import read_request

__all__ = ["CODEC"]

CODEC = Codec(WIRE, encode, decode, decoder, fault, read_request)
