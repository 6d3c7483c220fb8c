"""Command lines: of the scripts, and the command `fastdqn`."""
