"""Marks of tests that not every machine can run."""

import signal

import pytest

posix_signals = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs POSIX signals")
