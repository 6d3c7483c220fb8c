"""Ways to use several processes or threads, one strategy a file; none imports another."""
