"""`python -m diagnose` is the command `diagnose`."""

from diagnose.cli import main

main()
