"""Commands about conversations that are stored: list, show, check, replay, export and trace them."""
