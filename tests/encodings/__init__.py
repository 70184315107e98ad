"""Tests of the tool encodings."""
