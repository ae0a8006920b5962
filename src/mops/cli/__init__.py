"""The command line: one file per command. Results go to stdout, progress to stderr."""
