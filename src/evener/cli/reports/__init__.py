"""Commands that report on a thread, an endpoint or the command line itself, each in its own format."""
