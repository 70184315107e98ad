"""Tests of the model layer: whole calls, from an ask to an answer, against servers on loopback."""
