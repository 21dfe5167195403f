"""How fast densevit is, beside others, on the machine at hand; `densevit benchmark` runs it. Start with report.py."""
