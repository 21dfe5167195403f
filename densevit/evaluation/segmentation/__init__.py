"""Segmentation evaluation: mIoU and other pooled scores, confusion matrix and reports."""
