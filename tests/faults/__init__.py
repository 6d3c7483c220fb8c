"""Faults, injected: kills, full disks, damaged files, stepped clocks, closed terminals; `make faults` tries them all."""
