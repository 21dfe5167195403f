"""The commands, a module each: `add_arguments(parser)` declares the options, `run(args)` makes one call."""
