"""Searches with Ray Tune."""
