"""The cost pass: every candidate measured on the same machine, in turns."""
