"""Replay: storage, draws and n-step returns, each a part of its own."""
