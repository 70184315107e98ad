"""The loop, as pure functions: fold the log into a state, plan the next steps."""
