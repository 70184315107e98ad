"""The rows: providers and models, and how they deviate from their wires. Data, not code."""

from evener.providers.rows import Facts, ModelRow, Provider, Rows, Variable, load_rows

__all__ = ["Facts", "ModelRow", "Provider", "Rows", "Variable", "load_rows"]
