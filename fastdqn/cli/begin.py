"""What commands import first: it takes over signals, so that Ctrl-C during the imports that follow ends quietly."""

from __future__ import annotations

from fastdqn import process

process.take_over()
