"""Records exchanges with a provider once and replays them: the same bytes in the same pieces, free of secrets."""
