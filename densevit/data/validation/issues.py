"""Everything that dataset validation can report, in one table: severity, meaning and remedy."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class IssueType:
    """One type of issue. An error is what makes training or scores worse."""

    level: Level
    title: str
    remedy: str


_TYPES: dict[Level, dict[str, tuple[str, str]]] = {
    "error": {
        "unopened": ("the dataset cannot be opened", "Correct it as the message says, then run this again."),
        "missing": ("files or samples are missing", "Download or unpack them again, or set `subset: available`."),
        "unpaired": ("files belong to no image", "Name them as their images, or remove them."),
        "duplicate_name": ("one name stands for several files", "Keep one of them."),
        "empty": ("files of 0 bytes", "Download them again; a full disk leaves such files."),
        "not_an_image": ("files are not of the type they are named", "Replace them; often a saved error page."),
        "damaged": ("files are truncated or damaged", "Download or unpack them again, or delete image and maps."),
        "coarse_depth": ("depth maps of 8 bits or of colours", "Export depth as 16-bit PNG or as floats."),
        "bad_labels": ("label maps without class ids", "Store ids as gray or palette PNG, or list colours."),
        "size_mismatch": ("image and map differ in size", "Export both at one size, unrotated."),
        "unreadable": (
            "samples cannot be read",
            "Repair or remove these files, or set `on_corrupt: skip` for a training.",
        ),
        "exif": ("image and map may be rotated differently", "Rotate the pixels, and drop the EXIF orientation."),
        "empty_depth": ("depth maps without any valid depth", "Remove these samples, or export them again."),
        "negative_depth": ("negative depth", "Write 0 where depth is invalid; look for a wrong sign."),
        "unknown_unit": (
            "depth without a unit",
            "Say how many units are a metre: --data-options depth_scale=1000, or data.depth_scale in a config.",
        ),
        "units": ("depth in a wrong unit", "Set `depth_scale` to the units per metre of the files."),
        "invalid_marker": (
            "a value that marks missing depth",
            "Name it as stored, in each split: `data.train.invalid=[65535]`.",
        ),
        "mixed_units": (
            "folders in different units",
            "Export them in one unit, or make them two sources of a mixture.",
        ),
        "label_beyond_classes": (
            "labels beyond the classes",
            'Map them, or list them in classes.json with "ignore": true.',
        ),
        "no_labels": ("no label map has any class", "Check which list of classes they are read by."),
        "duplicate_image": ("one image stands for several samples", "Keep one of them."),
        "duplicate_depth": ("one depth map stands for several images", "Check how they were exported."),
        "duplicate_labels": ("one label map stands for several images", "Check how they were exported."),
        "leaked_image": ("evaluation images are in the training set", "Remove them from the training list."),
        "leaked_scene": ("splits share scenes", "Keep each scene in one split."),
        "checksum_mismatch": (
            "files differ from their recorded checksums",
            "Download them again; a disk or a copy changed bytes.",
        ),
    },
    "warning": {
        "inverse_depth": (
            "the maps look like inverse depth or disparity",
            "Convert them to metres (focal length x baseline / disparity), or ignore this if they are depth.",
        ),
        "unusual_depth": ("depth of an unusual magnitude", "Check the unit of the files and `depth_scale`."),
        "wrong_suffix": ("suffix and content differ", "They are read by content; rename them for other tools."),
        "blank_image": ("images of one colour", "Check whether they belong here."),
        "sparse_depth": ("hardly any valid depth in a map", "Check whether these samples are useful."),
        "binary_labels": ("label maps of 0 and 255 only", 'If 255 is a class, list it as {"id": 255, "name": ...}.'),
        "empty_labels": ("label maps without any class", "They teach nothing; check whether they should."),
        "far_depth": ("much depth beyond the range", "Check the unit, or widen the range."),
        "unusual_size": ("not the published image size", "Resized or cropped: intrinsics do not hold."),
        "camera": (
            "no image of this size has this camera",
            "Give that of these images, in their pixels: metres that depend on it, clouds and TAE are wrong.",
        ),
        "white_border": ("images have a white border", "Set `border: crop`, or the transform `nyu_crop`."),
        "density": ("unusual share of valid depth", "Papers score against rawDepths, not depths."),
        "tiny_objects": (
            "many objects of a few pixels",
            "Train at a larger size or on crops; a patch of 16 x 16 pixels is one token.",
        ),
        "left_out": ("samples are left out", "`subset: available` allows it; download them to have all."),
        "no_split": ("a split could not be opened", "Download it, or name the splits to check."),
    },
    "note": {
        "no_ground_truth": ("images without ground truth", "They are not scored; nothing is to be done."),
        "scaled_depth": ("depth of another size than the image", "State `depth_camera` if another camera took it."),
        "absent_class": ("classes that no image has", "They cannot be learned or scored here."),
        "hidden_segments": (
            "segments without a pixel",
            "Others cover them, or their outline is empty; they teach nothing.",
        ),
        "guessed_unit": ("the likely unit of depth", "Look at the metres that it gives, then pass it to all commands."),
        "likely_void": ("an id that may mean no class", "Leave it as it is if it is one."),
        "unknown_depth": ("NaN or infinite depth", "It is read as invalid; nothing is to be done."),
    },
}

ISSUE_TYPES = {name: IssueType(level, *row) for level, rows in _TYPES.items() for name, row in rows.items()}


@dataclass(frozen=True)
class Issue:
    """One problem found in a dataset."""

    type: str  # of ISSUE_TYPES
    split: str
    reason: str
    path: str = ""
    name: str = ""  # of the sample
    index: int | None = None  # of the sample in its split

    @property
    def level(self) -> Level:
        return ISSUE_TYPES[self.type].level

    def __str__(self) -> str:
        return ": ".join(text for text in (self.path or self.name, self.reason) if text)
