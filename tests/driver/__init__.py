"""Tests of the driver with everything around it: real processes, real sockets, real threads."""
