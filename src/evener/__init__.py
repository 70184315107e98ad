"""Evener: one typed conversation, one loop, any model."""

__version__ = "0.1.0"
