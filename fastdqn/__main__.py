"""`python -m fastdqn` is the command `fastdqn`."""

import sys

from fastdqn.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
