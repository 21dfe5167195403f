"""Notices trainings that collapse: depth that is constant, pixels that all are masked, motions that are too large."""

from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Bool
from torch import Tensor

from densevit.objectives.self_supervised.geometry import FramePairs, Motion, Plane

WARM_UP = 0.1  # of the run: depth is constant at its beginning
LEAST_SPREAD = 0.02  # standard deviation of log depth within an image
MOST_MASKED = 0.95
MOST_MOTION = 1.0  # of the median depth, from one frame to the next


class Monitor:
    """Keeps numbers of the last batch, and warns once of each kind of collapse.

    Attributes:
        progress: share of the run's steps that is done.
    """

    progress: float = 0.0

    def __init__(self) -> None:
        self.last: Mapping[str, Tensor] = {}
        self.warned: set[str] = set()

    def see(
        self,
        depth: Plane,
        motion: Motion,
        known: Bool[Tensor, "pairs 1 1 1"],
        moving: Bool[Tensor, "n h w"],
        pairs: FramePairs,
    ) -> None:
        compared = pairs.by_target(known[:, 0].float(), len(depth), 0.0).amax(1)  # 0 for images of no known motion
        length = motion[:, :3, 3].norm(dim=1)
        typical = depth.flatten(1).median(1).values.mean()
        self.last = {
            "depth_spread": depth.clamp_min(1e-3).log().flatten(1).std(1).mean(),
            "masked": (compared * ~moving).mean() / compared.mean().clamp_min(1e-6),
            "motion": torch.where(known[:, 0, 0, 0], length, 0.0).sum() / known.sum().clamp_min(1) / typical,
        }

    def values(self) -> dict[str, float]:
        """Return the numbers of the last batch: two reads of a device in a line of the log."""
        return dict(zip(self.last, torch.stack(list(self.last.values())).tolist(), strict=True)) if self.last else {}

    def warnings(self, values: Mapping[str, float]) -> Iterator[str]:
        """Yield what has gone wrong, with its cause and what to do."""
        spread, masked, motion = (values.get(name, 0.0) for name in ("depth_spread", "masked", "motion"))
        for name, applies, text in (
            (
                "spread",
                spread < LEAST_SPREAD and self.progress > WARM_UP,
                f"depth is all but constant (log depth spreads by {spread:.3f} within an image): the photometric loss "
                "does not reach it. Lower optim.lr, check the poses and intrinsics, or film with more parallax.",
            ),
            (
                "masked",
                masked > MOST_MASKED,
                f"{masked:.0%} of all pixels are masked: they match best unmoved. The camera stands still in these "
                "clips (raise data.clip_stride), or poses or intrinsics are wrong.",
            ),
            (
                "motion",
                motion > MOST_MOTION,
                f"the camera moves by {motion:.1f} times the median depth from frame to frame: frames are too far "
                "apart (lower data.clip_stride), or poses are wrong or not in metres.",
            ),
        ):
            if values and applies and name not in self.warned:
                self.warned.add(name)
                yield text
