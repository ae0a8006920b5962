"""Answers over HTTP, and of whole files."""
