"""Reports on Atari-100k: per-game scores beside published ones, aggregates with intervals, pictures."""
