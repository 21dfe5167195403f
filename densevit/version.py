"""The version of the package; imported by modules that must not import the package root."""

__version__ = "0.2.0"
