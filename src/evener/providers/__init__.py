"""The rows: who can be asked, and how they deviate. Data, not code."""
