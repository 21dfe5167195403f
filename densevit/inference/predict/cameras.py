"""The cameras of the images of an export: from the command, a table, or EXIF; and lenses that training did not show."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from densevit.data.index.manifest import CAMERA, camera_of, read_table
from densevit.data.io.exif import exif_focal
from densevit.data.io.readers import image_size
from densevit.data.recordings.cameras import coefficients_of, distortion_of, is_camera_object
from densevit.errors import DataError, located
from densevit.inference.camera import CameraPolicy, Intrinsics, Lens, focal_of_matrix, lens_warning
from densevit.inference.predict.inputs import Item, absolute
from densevit.ops.geometry import field_of_view
from densevit.structures import Size
from densevit.utils.json_files import read_json

log = logging.getLogger(__name__)

LOOKED_AT = 32  # images whose lens is compared with training's
COLUMNS = ("focal", "fov", *CAMERA)


def plan_cameras(items: Sequence[Item], camera: Sequence[float] | Path | Lens | None) -> list[Item]:
    """Return the items with the camera that was given; without any, with that of EXIF where it tells. Raises DataError:
    see `with_cameras` and `with_exif`; or the camera is that of no photo."""
    if camera is None:
        return with_exif(items)
    if isinstance(camera, Lens):
        return [checked(replace(item, intrinsics=camera, camera_source="given")) for item in items]
    if not isinstance(camera, Path):
        fx, fy, cx, cy = map(float, camera)
        return with_one_camera(items, Intrinsics(fx, fy, cx, cy))
    if not camera.exists():
        raise DataError(f"intrinsics are '{camera}', which is neither fx,fy,cx,cy in pixels nor a file.")
    return with_one_camera(items, Intrinsics.of_file(camera)) if is_one_camera(camera) else with_cameras(items, camera)


def is_one_camera(path: Path) -> bool:
    """Return whether a file is the calibration of one camera, not a table of images."""
    suffix = path.suffix.lower()
    tree = read_json(path) if suffix == ".json" else None
    matrix = isinstance(tree, list) and len(tree) in (3, 9) and not any(isinstance(row, dict) for row in tree)
    return suffix in (".yaml", ".yml", ".xml", ".txt") or matrix or is_camera_object(tree)


def resolve_cameras(items: Sequence[Item], policy: CameraPolicy) -> list[Item]:
    """Return the items with the cameras that the model needs; log a lens that its training did not show. Raises
    DataError if EXIF cannot be true, or the camera of an image is not known."""
    if policy.card.needs_camera:
        if policy.override is not None:
            return list(items)
        items = with_exif(items)
        if policy.assumed_fov is None and not policy.estimates:
            require_cameras(items)
    elif policy.card.fov is not None:
        angles = [angle for item in items[:LOOKED_AT] if (angle := horizontal_fov(item)) is not None]
        if warning := lens_warning(angles, policy.card):
            log.warning("%s", warning)
    return list(items)


def with_one_camera(items: Sequence[Item], camera: Intrinsics) -> list[Item]:
    """Return the items with one camera, which holds for images of the size of the first that can be read, or of that in
    its file."""
    size = camera.size or next(filter(None, map(size_of, items)), None)
    intrinsics = replace(camera, size=size)
    planned = [replace(item, intrinsics=intrinsics, camera_source="given") for item in items]
    if first := next((item for item in planned if size_of(item)), None):
        checked(first)
        if camera.distortion is not None:
            matrix = intrinsics.matrix(size_of(first) or (0, 0))
            log.warning(
                "Images are undistorted (%s), and so are the maps. Their camera is fx %.2f, fy %.2f, cx %.2f, cy %.2f.",
                camera.distortion, *focal_of_matrix(matrix),
            )  # fmt: skip
    return planned


def size_of(item: Item) -> Size | None:
    """Return None of an image that cannot be read, which fails in its turn."""
    try:
        with item.file() as path:
            return image_size(path)
    except (DataError, OSError):
        return None


def with_cameras(items: Sequence[Item], path: Path) -> list[Item]:
    """Return the items with the cameras of a table, CSV, JSON or JSON Lines.

    A row names its image by `image` (a path relative to the table's folder) or `name` (of the output), and gives fx,
    fy, cx, cy and the lens's k1, k2, p1, p2, k3 if it bends; or `focal`, in pixels; or `fov`, horizontal, in degrees.
    With `width` and `height` it holds for an image of that size. JSON is a list of such rows, or an object from names
    to them. Raises DataError if the table cannot be read, lacks the camera of an image, has two of one, or is of
    another image size.
    """
    cameras: dict[str | Path, tuple[str, Intrinsics | Lens]] = {}
    for origin, cells in camera_rows(path):
        filled = {key: str(value).strip() for key, value in cells.items() if value is not None and str(value).strip()}
        with located(origin):
            camera = camera_of_row(filled, {key: cells[key] for key in filled})
        key = filled.get("image") or filled.get("name")
        if camera is None or not key:
            columns = f"{', '.join(CAMERA)}, or focal, or fov"
            raise DataError(f"{origin}: a camera needs the columns image (or name), {columns}.")
        image_key = absolute(path.parent / key) if filled.get("image") else key
        if cameras.get(image_key, ("", camera))[1] != camera:
            raise DataError(f"{origin}: another camera of {key} than {cameras[image_key][0]}.")
        cameras[image_key] = (origin, camera)
    entries = [cameras.get(item.source) or cameras.get(item.name) for item in items]
    if missing := [item for item, camera in zip(items, entries, strict=True) if camera is None]:
        raise DataError(
            f"{path}: no camera for {len(missing)} of {len(items)} images, {missing[0].source} for one. "
            + rows_name(map(str, cameras), missing[0])
        )
    rows = [(item, *row) for item, row in zip(items, entries, strict=True) if row is not None]
    return [checked(replace(item, intrinsics=camera, camera_source="given"), origin) for item, origin, camera in rows]


def rows_name(images: Iterable[str], item: Item) -> str:
    """Return what the rows of a table are of, and how one would name an image."""
    names = list(dict.fromkeys(images))
    has = f"Its rows are of {', '.join(names[:3])}{', ...' * (len(names) > 3)}" if names else "No row names its image"
    return f"{has}. A row has an `image`, as a path from the table's folder, or a `name`, here {item.name}."


def camera_rows(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return where a row stands, and its cells."""
    if path.suffix.lower() != ".json":
        return [(f"{path}:{number}", cells) for number, cells in read_table(path)]
    tree = read_json(path)
    rows = (
        [{"name": name, **row} for name, row in tree.items() if isinstance(row, dict)]
        if isinstance(tree, dict)
        else tree
    )
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: expected a list of rows, or an object from names to cameras.")
    return [(f"{path}: row {number}", row) for number, row in enumerate(rows, 1)]


def camera_of_row(cells: Mapping[str, str], values: Mapping[str, Any]) -> Intrinsics | Lens | None:
    """Raise DataError: numbers that make no camera. `values`: the cells as JSON has them."""
    size = size_in_row(cells)
    try:
        model, coefficients = coefficients_of(values)
    except (LookupError, TypeError, ValueError):
        raise DataError(f"coefficients of a lens are numbers in columns k1, k2, p1, p2, k3; got {cells}.") from None
    lens = distortion_of(model, coefficients, "lens")
    if "focal" in cells or "fov" in cells:
        if lens is not None or len(set(cells) & set(COLUMNS)) > 1:
            choices = f"one of focal, fov and {', '.join(CAMERA)}, which a lens's k1 needs"
            raise DataError(f"give {choices}; got {', '.join(sorted(cells))}.")
        key = "focal" if "focal" in cells else "fov"
        try:
            return Lens(**{key: float(cells[key])}, size=size)
        except ValueError:
            raise DataError(f"{key} is {cells[key]!r}; {Lens.fits[key]}.") from None
    matrix = camera_of(cells)
    return None if matrix is None else Intrinsics(*focal_of_matrix(matrix), size, lens)


def size_in_row(cells: Mapping[str, str]) -> Size | None:
    sides = [cells.get(key) for key in ("height", "width")]
    if sides == [None, None]:
        return None
    if not all(text is not None and text.isdigit() and int(text) > 0 for text in sides):
        raise DataError(f"width and height are whole numbers of pixels; got {cells.get('width')} and {sides[0]}.")
    return int(sides[0] or 0), int(sides[1] or 0)


def checked(item: Item, row: str = "") -> Item:
    """Return the item. Raises DataError if its camera is that of an image of another size, or of no photo. `row`: of a
    table, where the camera stands."""
    assert item.intrinsics is not None
    if (size := size_of(item)) is not None:
        try:
            item.intrinsics.matrix(size)
        except DataError as error:
            raise DataError(f"{item.source}: {str(error).rstrip('.')}{row and f' ({row})'}.") from None
    return item


def with_exif(items: Sequence[Item], *, needed: bool = True) -> list[Item]:
    """Return the items; those without a camera take the focal length of their EXIF, where it tells. Raises DataError if
    EXIF cannot be true of the image, whose camera is needed."""
    return [item if item.intrinsics is not None else from_exif(item, needed) for item in items]


def from_exif(item: Item, needed: bool) -> Item:
    if size_of(item) is None:
        return item
    try:
        with item.file() as path:
            focal = exif_focal(path)
    except DataError:
        if needed:
            raise
        return item
    return item if focal is None else replace(item, intrinsics=Lens(focal=focal), camera_source="EXIF")


def require_cameras(items: Sequence[Item]) -> None:
    """Raise DataError if the camera of an image that can be read is not known."""
    missing = [item for item in items if item.intrinsics is None and size_of(item) is not None]
    if missing:
        raise DataError(
            f"{missing[0].source}: metres follow from the camera's focal length, and none is known of {len(missing)} "
            f"of {len(items)} images: their EXIF has none. Give --focal PIXELS or --fov DEGREES; predict also "
            "takes --intrinsics."
        )


def horizontal_fov(item: Item) -> float | None:
    if item.intrinsics is None or (size := size_of(item)) is None:
        return None
    return field_of_view(size[1], float(item.intrinsics.matrix(size)[0, 0]))
