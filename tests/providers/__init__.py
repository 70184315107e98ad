"""Tests of the rows and their loader."""
