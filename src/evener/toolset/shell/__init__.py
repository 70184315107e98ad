"""Commands in a sandbox. Used only on request; a command that cannot be sandboxed is refused."""
