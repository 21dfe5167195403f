"""`densevit app`: a local page that predicts for images and clips."""
