"""Benchmarks: ratios from one run on one machine. Nothing here is a timed test, and nothing in `src` imports it."""
