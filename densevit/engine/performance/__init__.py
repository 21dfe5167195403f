"""What a training says of its speed."""
