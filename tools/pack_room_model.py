"""Make the model of the package from a run of multitask/room_model: python tools/pack_room_model.py RUN [OUTPUT]"""

import argparse
from dataclasses import replace
from pathlib import Path

from densevit.utils.network import PUBLISHED
from densevit.weights import checkpoint
from densevit.weights.hub import PACKAGED_FOLDER

LIMIT = 8_000_000  # bytes
LIMITATIONS = (
    "It is small and does not replace published weights. Expect the coarse shape of a room; for photos take published "
    f"weights: densevit app {PUBLISHED}"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="the run's folder, or one of its checkpoints")
    parser.add_argument("output", nargs="?", type=Path, default=PACKAGED_FOLDER / checkpoint.WEIGHTS)
    pack(**vars(parser.parse_args()))


def pack(run: str, output: Path) -> None:
    folder = checkpoint.locate(run)
    manifest, (tensors, card) = checkpoint.verify(folder), checkpoint.read(folder)
    card = replace(
        card,
        source="densevit, recipe multitask/room_model, from scratch",
        licence="Apache-2.0",
        trained_on="rendered rooms alone (prepare_rooms.py --variety wide)",
        limitations=LIMITATIONS,
        config={},  # names folders of the machine; the recipe is part of the package
        scores=manifest.scores,
    )
    weights = {name: value.bfloat16() if value.is_floating_point() else value for name, value in tensors.items()}
    checkpoint.write_weights(output, weights, card)
    if (size := output.stat().st_size) > LIMIT:
        raise SystemExit(f"{output}: {size:,} bytes; the package takes {LIMIT:,}.")
    print(f"{output}: {size:,} bytes, step {manifest.step:,}")


if __name__ == "__main__":
    main()
