"""`python -m densevit COMMAND ...`, and for torchrun: `torchrun -m densevit train CONFIG`."""

import sys

from densevit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
