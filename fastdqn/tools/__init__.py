"""What one does with runs: evaluate, watch, plot, compare, series, sweep, report, share."""
