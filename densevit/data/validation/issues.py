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


ISSUE_TYPES: dict[str, IssueType] = {
    "unopened": IssueType("error", "the dataset cannot be opened", "Fix what the message names, then run this again."),
    "missing": IssueType(
        "error", "files or samples are missing", "Download or unpack them again, or set `subset: available`."
    ),
    "unpaired": IssueType("error", "files belong to no image", "Name them as their images, or remove them."),
    "duplicate_name": IssueType("error", "one name stands for several files", "Keep one of them."),
    "empty": IssueType("error", "files of 0 bytes", "Download them again; a full disk leaves such files."),
    "not_an_image": IssueType("error", "files are not of the type they are named", "Replace them; often a saved error page."),
    "damaged": IssueType("error", "files are truncated or damaged", "Download or unpack them again."),
    "coarse_depth": IssueType("error", "depth maps of 8 bits or of colours", "Export depth as 16-bit PNG or as floats."),
    "bad_labels": IssueType("error", "label maps without class ids", "Store ids as gray or palette PNG, or list colours."),
    "size_mismatch": IssueType("error", "image and map differ in size", "Export both at one size, unrotated."),
    "unreadable": IssueType("error", "samples cannot be read", "Fix what the message names."),
    "exif": IssueType("error", "image and map may be rotated differently", "Rotate the pixels, and drop the EXIF orientation."),
    "empty_depth": IssueType("error", "depth maps without any valid depth", "Remove these samples, or export them again."),
    "negative_depth": IssueType("error", "negative depth", "Write 0 where depth is invalid; look for a wrong sign."),
    "units": IssueType("error", "depth in a wrong unit", "Set `depth_scale` to the units per metre of the files."),
    "label_beyond_classes": IssueType("error", "labels beyond the classes", "Map them, or set them to 255 (ignored)."),
    "no_labels": IssueType("error", "no label map has any class", "Check which list of classes they are read by."),
    "duplicate_image": IssueType("error", "one image stands for several samples", "Keep one of them."),
    "duplicate_depth": IssueType("error", "one depth map stands for several images", "Check how they were exported."),
    "duplicate_labels": IssueType("error", "one label map stands for several images", "Check how they were exported."),
    "leaked_image": IssueType("error", "evaluation images are in the training set", "Remove them from the training list."),
    "leaked_scene": IssueType("error", "splits share scenes", "Keep each scene in one split."),
    "checksum_mismatch": IssueType(
        "error", "files differ from their recorded checksums", "Download them again; a disk or a copy changed bytes."
    ),
    "inverse_depth": IssueType(
        "warning",
        "the maps look like inverse depth or disparity",
        "Convert them (depth = focal length x baseline / disparity, or 1 / inverse depth), or ignore this if they are depth.",
    ),
    "unusual_depth": IssueType("warning", "depth of an unusual magnitude", "Check the unit of the files and `depth_scale`."),
    "wrong_suffix": IssueType("warning", "suffix and content differ", "They are read by content; rename them for other tools."),
    "blank_image": IssueType("warning", "images of one colour", "Check whether they belong here."),
    "sparse_depth": IssueType("warning", "hardly any valid depth in a map", "Check whether these samples are useful."),
    "binary_labels": IssueType(
        "warning", "label maps of 0 and 255 only", 'If 255 is a class, list it as {"id": 255, "name": ...}.'
    ),
    "empty_labels": IssueType("warning", "label maps without any class", "They teach nothing; check whether they should."),
    "far_depth": IssueType("warning", "much depth beyond the range", "Check the unit, or widen the range."),
    "unusual_size": IssueType("warning", "not the published image size", "Resized or cropped: intrinsics do not hold."),
    "white_border": IssueType("warning", "images have a white border", "Set `border: crop`, or the transform `nyu_crop`."),
    "density": IssueType("warning", "unusual share of valid depth", "Papers score against rawDepths, not depths."),
    "left_out": IssueType("warning", "samples are left out", "`subset: available` allows it; download them to have all."),
    "no_split": IssueType("warning", "a split could not be opened", "Download it, or name the splits to check."),
    "no_ground_truth": IssueType("note", "images without ground truth", "They are not scored; nothing is to be done."),
    "absent_class": IssueType("note", "classes that no image has", "They cannot be learned or scored here."),
    "unknown_depth": IssueType("note", "NaN or infinite depth", "It is read as invalid; nothing is to be done."),
}  # fmt: skip


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
        return ": ".join(part for part in (self.path or self.name, self.reason) if part)
