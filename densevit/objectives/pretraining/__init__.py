"""Self-supervised pre-training of encoders."""
