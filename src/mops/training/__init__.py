"""Training: one trainer, its losses, gradients, checkpoints and the run folder."""
