"""The viewer: what it serves, to whom, and how it looks in a real browser."""
