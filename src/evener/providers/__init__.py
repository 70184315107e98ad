"""The rows: who can be asked, and how they deviate. Data, not code."""

from evener.providers.rows import Facts, ModelRow, Provider, Rows, Variable, load_rows

__all__ = ["Facts", "ModelRow", "Provider", "Rows", "Variable", "load_rows"]
