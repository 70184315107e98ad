"""What the Anthropic Messages API refuses with a 400. Pure and total."""
