"""Argparse types: what a word on the command line must be, with the message for one that is not."""

import argparse
from collections.abc import Callable


def positive_int(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return value


def positive_ints(text: str) -> tuple[int, ...]:
    """Comma-separated."""
    return tuple(positive_int(word) for word in text.split(","))


def positive_int_or_dynamic(text: str) -> int | None:
    """None for `dynamic`."""
    return None if text == "dynamic" else positive_int(text)


def numbers(count: int) -> Callable[[str], tuple[float, ...]]:
    """A type of so many comma-separated numbers."""

    def parse(text: str) -> tuple[float, ...]:
        values = tuple(map(float, text.split(",")))
        if len(values) != count:
            raise argparse.ArgumentTypeError(f"needs {count} numbers, comma-separated, got {text!r}")
        return values

    parse.__name__ = f"{count} numbers"  # argparse names it in its messages
    return parse


def size(text: str) -> tuple[int, int]:
    """Height and width, `480,640` or `480x640`."""
    sides = text.lower().replace("x", ",").split(",")
    if len(sides) != 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise argparse.ArgumentTypeError(f"height and width in pixels, 375x1242 for example; got {text!r}")
    return int(sides[0]), int(sides[1])


def size_or_dynamic(text: str) -> tuple[int, int] | str:
    return text if text == "dynamic" else size(text)


def budgets(text: str) -> dict[str, float]:
    """`d1=0.005,miou=0.01`."""
    pairs = [word.partition("=") for word in text.split(",")]
    try:
        found = {name.strip(): float(value) for name, _, value in pairs}
    except ValueError:
        found = {}
    if not found or not all(name and 0 <= value < float("inf") for name, value in found.items()):
        raise argparse.ArgumentTypeError(f"metrics and how much worse they may be, as d1=0.005; got {text!r}")
    return found


def scales(text: str) -> tuple[float, ...]:
    values = tuple(map(float, text.split(",")))
    if not all(0 < value <= 8 for value in values):
        raise argparse.ArgumentTypeError(f"scales lie between 0 and 8, got {text!r}")
    return values


def words(text: str) -> tuple[str, ...]:
    """Comma-separated, each once."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
