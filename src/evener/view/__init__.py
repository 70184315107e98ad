"""The viewer: a page on loopback that shows what the store holds, live, and decides what waits. Needs the extra `view`."""
