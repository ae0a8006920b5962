"""Recipes: everything that one run needs, as validated plain data."""
