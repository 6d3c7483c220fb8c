"""What other packages say in words that differ between the versions that are tested."""

from __future__ import annotations

import importlib.metadata

NO_HALF_CHEETAH = (
    "HalfCheetah-v2 needs a package that is missing: "
    if importlib.metadata.version("gymnasium").startswith("1.1.")
    else "The environment HalfCheetah-v2 cannot be made: "
)
"""How the sentence begins that says that MuJoCo's older environments are no more."""
