"""Commands that tell of a thread, of an endpoint or of the command line itself, each in a form of its own."""
