"""What the OpenAI Responses API refuses with a 400. Pure and total."""
