"""What one does with runs: evaluate, watch, plot, compare, sweep, report, share."""
