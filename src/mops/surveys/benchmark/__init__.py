"""The cost pass: time, memory and latency of every candidate, measured side by side."""
