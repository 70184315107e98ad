"""Conversations written by hand, a folder each: what is asked, sent, answered and understood."""
