"""I/O: how requests reach a provider. Nothing here knows a wire."""
