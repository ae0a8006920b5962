"""Masked-language-model training of an encoder on the tasks' own texts."""
