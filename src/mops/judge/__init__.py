"""Scores, evaluation, guards and costs."""
