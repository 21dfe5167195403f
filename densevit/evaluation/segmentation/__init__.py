"""segmentation"""
