"""Evener's tests. Their folders mirror src/evener; shape/ looks at the tree itself."""
