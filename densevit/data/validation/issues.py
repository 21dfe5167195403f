"""What the doctor can find, in one table: how bad it is, what it means, and what to do."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["fault", "warning", "note"]
LEVELS: tuple[Level, ...] = ("fault", "warning", "note")


@dataclass(frozen=True)
class Kind:
    """One sort of finding. A fault is what training or a score would suffer from."""

    level: Level
    title: str
    remedy: str


KINDS: dict[str, Kind] = {
    "unopened": Kind("fault", "the data set cannot be opened", "Mend what the message names, then run this again."),
    "missing": Kind("fault", "files or samples are missing", "Fetch or unpack them again, or set `subset: available`."),
    "unpaired": Kind("fault", "files belong to no image", "Name them as their images, or remove them."),
    "duplicate_name": Kind("fault", "one name stands for several files", "Keep one of them."),
    "empty": Kind("fault", "files of 0 bytes", "Fetch them again; a full disk leaves such files."),
    "not_a_picture": Kind("fault", "files are not what their names say", "Replace them; often a saved error page."),
    "damaged": Kind("fault", "files are truncated or damaged", "Fetch or unpack them again."),
    "coarse_depth": Kind("fault", "depth maps of 8 bits or of colours", "Export depth as 16-bit PNG or as floats."),
    "bad_labels": Kind("fault", "label maps without class ids", "Store ids as gray or palette PNG, or list colours."),
    "size_mismatch": Kind("fault", "image and map differ in size", "Export both at one size, unrotated."),
    "unreadable": Kind("fault", "samples cannot be read", "Mend what the message names."),
    "exif": Kind("fault", "image and map may be turned apart", "Rotate the pixels, and drop the EXIF orientation."),
    "empty_depth": Kind("fault", "depth maps without any depth", "Remove these samples, or export them again."),
    "negative_depth": Kind("fault", "depth below zero", "Write 0 where nothing was measured; look for a wrong sign."),
    "units": Kind("fault", "depth in a wrong unit", "Set the units per metre that the files were written with."),
    "label_beyond_classes": Kind("fault", "labels beyond the classes", "Map them, or 255 to ignore them."),
    "no_labels": Kind("fault", "no label map has any class", "Look by which list of classes they are read."),
    "duplicate_image": Kind("fault", "one image stands for several samples", "Keep one of them."),
    "duplicate_depth": Kind("fault", "one depth map stands for several images", "Look how they were exported."),
    "duplicate_labels": Kind("fault", "one label map stands for several images", "Look how they were exported."),
    "leaked_image": Kind("fault", "evaluation images are in the training set", "Remove them from the training list."),
    "leaked_scene": Kind("fault", "splits share scenes", "Keep each scene in one split."),
    "changed": Kind("fault", "files differ from their recorded sums", "Fetch them again; a disk or copy flipped bits."),
    "renamed": Kind("warning", "suffix and content differ", "They are read by content; rename them for others' sake."),
    "blank_image": Kind("warning", "images of one colour", "Look whether they should be there."),
    "sparse_depth": Kind("warning", "hardly any depth in a map", "Look whether these samples are worth their time."),
    "binary_labels": Kind(
        "warning", "label maps of 0 and 255 only", 'If 255 is a class, list it as {"id": 255, "name": ...}.'
    ),
    "empty_labels": Kind("warning", "label maps without any class", "They teach nothing; look whether they should."),
    "far_depth": Kind("warning", "much depth beyond the range", "Check the unit, or widen the range."),
    "unusual_size": Kind("warning", "not the published image size", "Resized or cropped: intrinsics do not hold."),
    "white_border": Kind("warning", "images have a white frame", "Set `border: crop`, or the transform `nyu_crop`."),
    "density": Kind("warning", "unusual share of measured depth", "rawDepths, not depths, are what papers score."),
    "left_out": Kind("warning", "samples are left out", "`subset: available` allows it; fetch them to have all."),
    "no_split": Kind("warning", "a split could not be opened", "Fetch it, or name the splits to check."),
    "no_truth": Kind("note", "images that have no ground truth", "They count nowhere; nothing is to be done."),
    "absent_class": Kind("note", "classes that no image has", "They cannot be learnt or scored here."),
    "unknown_depth": Kind("note", "NaN or infinite depth", "It is read as not measured; nothing is to be done."),
}


@dataclass(frozen=True)
class Finding:
    """One thing found."""

    kind: str  # of KINDS
    split: str
    reason: str
    path: str = ""
    name: str = ""  # of the sample
    index: int | None = None  # of the sample in its split

    @property
    def level(self) -> Level:
        return KINDS[self.kind].level

    def words(self) -> str:
        return ": ".join(word for word in (self.path or self.name, self.reason) if word)
