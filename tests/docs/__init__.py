"""Tests of documents that are made from the code."""
