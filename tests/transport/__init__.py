"""Tests of the transport: real servers on loopback, in this process."""
