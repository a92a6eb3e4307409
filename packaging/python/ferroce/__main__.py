"""`python -m ferroce` and the installed `ferroce` become the command of this package."""

import os
import sys

from . import COMMAND


def main():
    os.execv(COMMAND, ["ferroce", *sys.argv[1:]])


if __name__ == "__main__":
    main()
