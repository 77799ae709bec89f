#!/usr/bin/env python3
"""Prints the configuration of the packages: the example with the data folder of a
service.

scripts/dist/configuration.py config/example.toml
"""

import sys
from pathlib import Path

#: A line of the example, and what replaces it. The program finds the models by itself.
OLD, NEW = '\ndata = "data"', '\ndata = "/var/lib/visavis"'


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    text = Path(sys.argv[1]).read_text()
    if text.count(OLD) != 1:
        sys.exit(f"configuration: the example has no single line with {OLD.strip()}")
    print(text.replace(OLD, NEW), end="")


if __name__ == "__main__":
    main()
