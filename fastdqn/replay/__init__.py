"""Replay: storage, sampling and n-step returns, each a part of its own."""
