"""Tools: schemas, validation, running."""
