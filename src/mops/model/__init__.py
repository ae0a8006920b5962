"""The network: a packed BERT encoder that interprets a plan, and the heads on top of it."""
