"""Every published data set of label maps, from files of its real layout and encoding."""

from dataclasses import replace
from pathlib import Path

import cv2
import layouts
import numpy as np
import pytest
import scipy.io
from layouts.common import opened
from layouts.segmentation_cases import CASES, Case, samples
from photo_samples import assert_damage_is_named
from PIL import Image

from densevit.data.labels.class_lists import published_table
from densevit.errors import DataError
from densevit.structures import IGNORE


@pytest.fixture(params=CASES, ids=Case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


def test_what_was_written_comes_back_with_255_where_there_is_no_class(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = samples(case.classes)
    case.write(tmp_path, made, **case.written)
    data = opened(case.type, tmp_path, **case.options)
    assert "2 of the" in caplog.text and "published images" in caplog.text
    assert len(data) == 2 and len(set(data.names)) == 2
    assert len(data.classes) == len(data.palette) == len(set(data.classes)) == case.classes
    for i, expected in enumerate(made):
        got = data.read(i)
        none = expected.labels == IGNORE
        assert none.any() and got.labels.dtype == np.int64
        # PASCAL-Context knows no void: what nobody marked is the background.
        blank = 0 if case.type == "pascal_context" else IGNORE
        np.testing.assert_array_equal(got.labels, np.where(none, blank, expected.labels))
        np.testing.assert_array_equal(got.labels, data.label_map(i))
        assert got.depth is None and got.image.shape == expected.image.shape
        assert set(data.files(i)) == {"image", "labels"}


def test_missing_and_damaged_files_foreign_ids_and_other_sizes_are_named(case: Case, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        opened(case.type, tmp_path, **case.options)
    case.write(tmp_path, samples(case.classes), **case.written)
    data = opened(case.type, tmp_path, **case.options)
    path, image = (data.files(0)[kind] for kind in ("labels", "image"))
    whole, message = path.read_bytes(), "id 200 in 15 pixels"
    assert_damage_is_named(data, "labels")
    if path.suffix == ".mat":
        scipy.io.savemat(path, {"LabelMap": np.full((96, 128), 460, np.uint16)})
        message = "460.*0 to 459"
    else:
        path.write_bytes(whole)
        ids = np.asarray(Image.open(path)).copy()
        ids[:3, :5] = 200
        cv2.imwrite(str(path), ids)
    with pytest.raises(DataError, match=f"{path.name}: .*{message}"):
        data.read(0)
    path.write_bytes(whole)
    cv2.imwrite(str(image), np.zeros((10, 12, 3), np.uint8))
    with pytest.raises(DataError, match="10 x 12.*96 x 128"):
        data.read(0)
    data.files(1)["labels"].unlink()
    with pytest.raises(DataError, match="1 of 2 samples lack a file"):
        opened(case.type, tmp_path, **case.options)
    assert len(opened(case.type, tmp_path, **case.options, subset="available")) == 1


# Numbers of the published tables: ADE20K's objectInfo150.txt and color150.mat, Cityscapes' labels.py, the VOC
# development kit, PASCAL-Context's labels, COCO-Stuff's labels.txt (whose ids the maps store less one).
FACTS = [
    ("ade20k", 1, 0, "wall", (120, 120, 120)),
    ("ade20k", 8, 7, "bed", (204, 5, 255)),
    ("ade20k", 150, 149, "flag", (92, 0, 255)),
    ("cityscapes", 7, 0, "road", (128, 64, 128)),
    ("cityscapes", 17, 5, "pole", (153, 153, 153)),
    ("cityscapes", 31, 16, "train", (0, 80, 100)),
    ("cityscapes", 33, 18, "bicycle", (119, 11, 32)),
    ("voc", 0, 0, "background", (0, 0, 0)),
    ("voc", 15, 15, "person", (192, 128, 128)),
    ("voc", 20, 20, "tvmonitor", (0, 64, 128)),
    ("pascal_context", 2, 1, "aeroplane", (128, 0, 0)),
    ("pascal_context", 284, 37, "person", None),
    ("pascal_context", 458, 59, "wood", None),
    ("coco_stuff", 0, 0, "person", None),
    ("coco_stuff", 12, 11, "stop sign", None),  # street sign, 11, occurs nowhere
    ("coco_stuff", 89, 79, "toothbrush", None),
    ("coco_stuff", 91, 80, "banner", None),
    ("coco_stuff", 181, 170, "wood", None),
]


def test_the_tables_say_what_was_published() -> None:
    for name, stored, place, word, colour in FACTS:
        table = published_table(name)
        assert table.places[stored] == place and table.names[place] == word
        assert colour is None or table.palette[place] == colour


def test_cityscapes_ignores_fifteen_of_its_34_ids_and_coco_stuff_lacks_eleven_of_182() -> None:
    cityscapes = published_table("cityscapes").places
    assert sorted(i for i, place in cityscapes.items() if place == IGNORE) == [*range(7), 9, 10, 14, 15, 16, 18, 29, 30]
    assert len(cityscapes) == 34
    coco = published_table("coco_stuff").places
    absent = {11, 25, 28, 29, 44, 65, 67, 68, 70, 82, 90}  # labels.md: removed from COCO
    assert set(range(182)) - set(coco) == absent and coco[255] == IGNORE


def test_the_colours_of_voc_are_those_of_its_kits_colour_map() -> None:
    assert published_table("voc").palette == layouts.segmentation.colour_map()[:21]
    assert layouts.segmentation.colour_map()[255] == (224, 224, 192)  # the kit's colour of borders


def test_ade20k_maps_that_somebody_reduced_are_refused_rather_than_shifted(tmp_path: Path) -> None:
    layouts.write_ade20k(tmp_path, samples(150, 1))
    data = opened("ade20k", tmp_path)
    path = data.files(0)["labels"]
    stored = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    cv2.imwrite(str(path), np.where(stored == 0, 255, stored - 1).astype(np.uint8))
    with pytest.raises(DataError, match="id 255 in .* ids 0 to 150"):
        data.read(0)


def test_the_background_of_pascal_context_is_400_of_459_ids_and_ignored_unless_wanted(tmp_path: Path) -> None:
    layouts.write_pascal_context(tmp_path, samples(60, 1))
    data, without = opened("pascal_context", tmp_path, background=True), opened("pascal_context", tmp_path)
    labels = data.label_map(0)
    np.testing.assert_array_equal(without.label_map(0), np.where(labels == 0, IGNORE, labels - 1))
    assert len(without.classes) == len(without.palette) == 59 and without.classes[0] == "aeroplane"
    ids, path = np.arange(96 * 128).reshape(96, 128) % 460, data.files(0)["labels"]
    scipy.io.savemat(path, {"LabelMap": ids.astype(np.uint16)})
    labels = data.label_map(0)
    assert len(set(ids[labels > 0])) == 59 and set(labels[ids == 440]) == {data.classes.index("wall")}
    scipy.io.savemat(path, {"LabelMap": np.full((96, 128), 440.0)})  # MATLAB's doubles are ids if they are whole
    assert (data.label_map(0) == data.classes.index("wall")).all()
    scipy.io.savemat(path, {"LabelMap": np.full((96, 128), 440.5)})
    with pytest.raises(DataError, match="expected h x w integers"):
        data.label_map(0)


def test_an_augmented_voc_has_sbds_images_without_those_of_vals_list(tmp_path: Path) -> None:
    made = samples(21, 6)
    layouts.write_voc(tmp_path, made[:2], "train")
    layouts.write_voc(tmp_path, [made[5]], "val")
    # SBD labels anew some of VOC's own images: one of train, one of val.
    layouts.write_sbd(tmp_path, made[2:5], "train")
    layouts.write_sbd(tmp_path, made[5:], "val")
    (tmp_path / "sbd/train.txt").write_text("2008_000002\n2008_000003\n2008_000004\n2007_000000\n")
    (tmp_path / "sbd/val.txt").write_text("2007_000005\n")
    data = opened("voc", tmp_path, split="train_aug")
    assert list(data.names) == ["2007_000000", "2007_000001", "2008_000002", "2008_000003", "2008_000004"]
    assert [data.files(i)["labels"].suffix for i in range(5)] == [".png", ".png", ".mat", ".mat", ".mat"]
    labels, expected = data.label_map(2), made[2].labels
    np.testing.assert_array_equal(labels, np.where(expected == IGNORE, 0, expected))  # SBD has no border


def test_converted_labels_of_sbd_are_preferred_and_its_absence_is_explained(tmp_path: Path) -> None:
    layouts.write_voc(tmp_path, samples(21, 1), "train")
    layouts.write_voc(tmp_path, [replace(samples(21, 1)[0], name="7")], "val")
    with pytest.raises(DataError, match="sbd_root"):
        opened("voc", tmp_path, split="train_aug")
    layouts.write_sbd(tmp_path, samples(21, 1), "train")
    layouts.write_sbd(tmp_path, samples(21, 1), "val")
    home = tmp_path / "VOCdevkit/VOC2012"
    (home / "SegmentationClassAug").mkdir()
    cv2.imwrite(str(home / "SegmentationClassAug/2008_000000.png"), np.full((96, 128), 3, np.uint8))
    data = opened("voc", tmp_path, split="train_aug")
    assert data.files(1)["labels"].suffix == ".png" and (data.label_map(1) == 3).all()
    (tmp_path / "sbd").rename(tmp_path / "elsewhere")
    assert len(opened("voc", tmp_path, split="train_aug", sbd_root=str(tmp_path / "elsewhere"))) == 2


def test_cityscapes_takes_label_ids_before_train_ids_and_names_cities_as_scenes(tmp_path: Path) -> None:
    layouts.write_cityscapes(tmp_path, samples(19, 1))
    data = opened("cityscapes", tmp_path)
    assert data.files(0)["labels"].name == "aachen_000000_000019_gtFine_labelIds.png"
    assert list(data.names) == ["aachen/aachen_000000_000019"] and data.scene(0) == "aachen"


def test_coarse_cityscapes_and_a_test_set_without_labels_are_read(tmp_path: Path) -> None:
    layouts.write_cityscapes(tmp_path, samples(19, 1), "train_extra")
    with pytest.raises(DataError, match="annotation: gtCoarse"):
        opened("cityscapes", tmp_path, split="train_extra")
    assert opened("cityscapes", tmp_path, split="train_extra", annotation="gtCoarse").read(0).labels is not None
    folder = tmp_path / "leftImg8bit/test/berlin"
    folder.mkdir(parents=True)
    cv2.imwrite(str(folder / "berlin_000000_000019_leftImg8bit.png"), np.zeros((8, 16, 3), np.uint8))
    data = opened("cityscapes", tmp_path, split="test")
    assert data.read(0).labels is None and set(data.files(0)) == {"image"}


def test_coco_stuffs_maps_are_found_where_its_zip_unpacks_them(tmp_path: Path) -> None:
    layouts.write_coco_stuff(tmp_path, samples(171, 1))
    (tmp_path / "images/train2017").rename(tmp_path / "train2017")
    (tmp_path / "annotations").rename(tmp_path / "stuffthingmaps")
    (tmp_path / "annotations").mkdir()  # of COCO's own JSON files
    assert opened("coco_stuff", tmp_path).read(0).labels is not None


def test_a_list_that_leads_out_of_the_data_set_is_refused(tmp_path: Path) -> None:
    layouts.write_voc(tmp_path, samples(21, 1))
    listed = tmp_path / "VOCdevkit/VOC2012/ImageSets/Segmentation/train.txt"
    for text in ("../../secret\n", "/etc/passwd\n", "", "\xff\xfe"):
        listed.write_bytes(text.encode("latin-1"))
        with pytest.raises(DataError, match=r"train\.txt"):
            opened("voc", tmp_path)
