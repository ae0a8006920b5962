"""Hyperparameter search and the verdict on its winner."""
