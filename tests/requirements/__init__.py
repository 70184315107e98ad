"""Tests of requirements that no test of a module shows by itself; each names its numbers."""
