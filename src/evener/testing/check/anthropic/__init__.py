"""Rules of the Anthropic Messages API, which answers a violation with a 400. Pure; no JSON value makes it raise."""
