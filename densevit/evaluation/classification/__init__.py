"""Classification evaluation: accuracy, top-5, confusion matrix and report."""
