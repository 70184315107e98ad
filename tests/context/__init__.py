"""The system prompt and the scratchpad."""
