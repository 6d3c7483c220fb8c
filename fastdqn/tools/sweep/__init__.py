"""Sweeps: games times seeds times agents, or any other options of a script, as one thing that can be resumed.

`plan` says what is to be run, `results` what has come of it, `jobs` runs one of them, `local` and `cluster` several at
once, and `control` all.
"""
