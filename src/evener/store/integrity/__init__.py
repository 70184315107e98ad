"""Whether what a store holds is what was written to it: digests, checkpoints, and the one verifier."""
