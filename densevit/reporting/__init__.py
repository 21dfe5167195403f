"""Reports: HTML pages, charts, figures of samples, and tables."""
