"""The BERT-family trunk, its bank of weights, the heads, and the network of them all."""
