"""Proofs about the store's file: power cuts, kills between any two writes, damage, a full disk, many processes."""
