"""Many small networks on one frozen encoder, trained as one batched computation."""
