"""Metrics, the noise of a score, and the comparison of runs."""
