"""Threads in transfer from one store to another: as lines of JSON, checked before anything is stored."""
