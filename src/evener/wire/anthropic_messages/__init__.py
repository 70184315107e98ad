"""Anthropic Messages."""

from evener.wire.anthropic_messages.decode import decode, decoder
from evener.wire.anthropic_messages.encode import WIRE, encode
from evener.wire.anthropic_messages.read import read_request
from evener.wire.codec import Codec
from evener.wire.faults import fault

__all__ = ["CODEC"]

CODEC = Codec(WIRE, encode, decode, decoder, fault, read_request)
