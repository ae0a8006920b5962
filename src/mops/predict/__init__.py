"""A trained model as a folder, and its answers."""
