"""Command options that several commands share; each is declared here once."""
