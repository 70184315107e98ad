"""Evener: one typed conversation, one loop, any model."""

__all__ = ["__version__"]

__version__ = "0.1.0"
