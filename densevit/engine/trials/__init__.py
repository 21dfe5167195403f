"""Steps on the images of one batch, which write nothing."""
