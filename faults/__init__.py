"""Faults at random moments in real commands: `python -m faults --minutes 15`."""
