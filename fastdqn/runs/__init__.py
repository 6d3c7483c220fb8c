"""What surrounds a training loop, whatever is learnt: counters, logs, checkpoints, progress, the end."""
