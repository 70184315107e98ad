"""The tools that agents use: files, search, shell, and the rest."""
