"""Many runs at once: small networks on one frozen encoder."""
