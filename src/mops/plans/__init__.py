"""Sharing plans: which weights exist, which copy serves which task, and how large it all is."""
