"""`python -m mops` is `mops`."""

from mops.cli.main import main

main()
