"""Faults, injected: kills, full disks, damaged files, clocks that are set, closed terminals (`make faults`)."""
