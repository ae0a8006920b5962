"""Benchmarks: mops beside the alternative a user would pick, in one run."""
