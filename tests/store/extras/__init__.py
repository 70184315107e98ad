"""Tests of what a store does besides keeping events: the funnel, ciphers, titles, search, retention, backups, exports."""
