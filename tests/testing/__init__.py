"""Tests of evener.testing."""
