"""Tests of the benchmarks: that they run and read what they measure. No figure is tested."""
