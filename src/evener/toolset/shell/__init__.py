"""Commands in a sandbox. Off unless asked for; a command that cannot be fenced in is refused."""
