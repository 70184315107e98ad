"""Checks that a store contains what was written to it: digests, checkpoints, and the only verifier."""
