"""Tests of the tree itself. Each gate has a twin that feeds it a violation."""
