"""Masked-word pretraining of an encoder on the texts of the tasks."""
