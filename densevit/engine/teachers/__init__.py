"""What teaches beside ground truth: the moving average of the weights, and a frozen encoder."""
