"""The loop as pure functions: compute the state from events, plan the next steps."""
