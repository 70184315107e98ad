"""Laws: what holds for any input, searched by Hypothesis."""
