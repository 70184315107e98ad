"""I/O: how requests reach a provider. Nothing here depends on a wire."""
