"""Videos: depth of clips and live streams, stabilised and written as videos."""
