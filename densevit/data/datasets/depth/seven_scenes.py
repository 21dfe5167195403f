"""`seven_scenes`: Microsoft's 7-Scenes, indoor videos of a Kinect with poses, 480 x 640.

    chess/{Train,Test}Split.txt                        `sequence1` a line
    chess/seq-01/frame-000000.color.png
    chess/seq-01/frame-000000.depth.png                16 bits, millimetres; 0 and 65535 = none
    chess/seq-01/frame-000000.pose.txt                 4 x 4, camera to world

Shotton et al. 2013. The two cameras were not registered: depth is up to some pixels off the colour image.
"""

from dataclasses import replace
from typing import Literal

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import Subset, find_files, read_names
from densevit.data.recordings.layouts import read_frames
from densevit.ops.geometry import pinhole

CAMERA = pinhole(585.0, 585.0, 320.0, 240.0)  # as the data set's page gives it


@DATASETS.register("seven_scenes")
class SevenScenes(FileDataset):
    """7-Scenes."""

    depth_scale = 1000.0
    depth_range = (1e-3, 10.0)
    invalid = (65535,)
    sizes = frozenset([(480, 640)])
    video = True

    def __init__(
        self,
        *,
        root: Root = None,
        split: Literal["train", "test"] = "test",
        scenes: tuple[str, ...] = (),
        subset: Subset = "full",
    ) -> None:
        """List the frames of the official split.

        Args:
            scenes: chess, fire, heads, office, pumpkin, redkitchen, stairs; none names all that are there.
        """
        self.root = resolve_root(root, "seven_scenes")
        name = f"{split.title()}Split.txt"
        lists = (
            [self.root / scene / name for scene in scenes]
            if scenes
            else find_files(self.root, [name, f"*/{name}"], "the official split of a scene.")
        )
        samples = [
            replace(f, name=f"{file.parent.name}/{folder.name}/{f.name}", intrinsics=CAMERA)
            for file in lists
            for sequence in read_names(file)
            for folder in [file.parent / f"seq-{int(sequence.removeprefix('sequence')):02d}"]
            for f in read_frames(folder)
        ]
        super().__init__(samples, subset, f"seven_scenes '{split}' in {self.root}")
