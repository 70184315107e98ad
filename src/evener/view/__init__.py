"""The viewer: a page on loopback that shows the store, live, and takes decisions about approvals. Needs the extra `view`."""
