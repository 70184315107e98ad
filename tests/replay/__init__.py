"""Replays of recorded runs, and edits that are found."""
