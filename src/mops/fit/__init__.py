"""Training: losses, the step, the loop, checkpoints."""
