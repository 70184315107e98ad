"""Tests of the store: one table for both stores, then what only a file can go through."""
