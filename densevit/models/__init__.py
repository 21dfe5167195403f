"""Networks: encoders, decoders, heads and conditionings; importing this registers them."""

from densevit.registry import import_all

for kind in ("encoders", "decoders", "heads", "conditioning"):
    import_all(f"{__name__}.{kind}")
