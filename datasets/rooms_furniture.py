"""Rebuilds densevit_rooms/furniture from the CC0 library of Debian's `sweethome3d-furniture`.

    dpkg-deb -x sweethome3d-furniture_1.8-1_all.deb unpacked
    python datasets/rooms_furniture.py unpacked/usr/share/sweethome3d/furniture/BlendSwap-CC-0.sh3f

One `.npz` per model: `vertices` (uint16, the bounding box as 0..65535), `normals` (int8), `uv` (float32), `faces`,
`material` per face; per material a colour `colours` (uint8 RGB) and `textures` (-1 or the number of a JPEG `jpeg_N`).
Axes: x right, y back to front, z up. Sizes in metres, classes and makers stand in `index.json`.
"""

import argparse
import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

FOLDER = Path(__file__).resolve().parent.parent / "densevit_rooms" / "furniture"
TEXTURE_SIDE = 256
MAX_FACES = 14_000
TRANSPARENT = (
    0.6  # glass lighter than this is left out: a depth map of what stands behind it would contradict the image
)

# model folder -> class of densevit.data.datasets.rooms.CLASSES
MODELS = {
    "bed2": "bed", "bed3": "bed", "bedWithTexture": "bed",
    "sofa2": "sofa", "couch2": "sofa", "sofa": "sofa", "couch": "sofa", "armchair2": "sofa",
    "modernArmchair": "chair", "chair2": "chair", "osakaChair": "chair", "sillaBlanca": "chair", "thonet": "chair",
    "plasticChair": "chair", "chair": "chair", "chairWithCushion": "chair", "armchair": "chair", "stool2": "chair",
    "table": "table", "oakTable": "table", "tableWithTablecloth": "table", "desk": "table", "lbDesk": "table",
    "bedsideTable2": "cabinet", "wardrobeWithSlidingDoors": "cabinet", "cupboard": "cabinet",
    "lowerCabinet": "cabinet", "drawersCabinet": "cabinet", "modernVanity": "cabinet",
    "bookcase": "shelf", "shelves": "shelf", "verticalShelves": "shelf",
    "largeFridge": "appliance", "highCabinet": "appliance",
    "plant": "plant", "littlePlant": "plant", "desklamp": "lamp", "lamp2": "lamp", "led_tv": "television",
    "radiator1": "object", "whiteBoard": "object", "pianoAQueue": "object", "toiletsUnit": "object",
    "speaker3": "object", "crate": "object", "basketball": "object", "tetrapak": "object", "dustbin": "object",
    "box": "object", "bread": "object",
}  # fmt: skip


@dataclass(frozen=True)
class Wavefront:
    """A triangulated OBJ with its materials. Corner arrays index `points`, `uv` and `normals`; -1 where it has none."""

    points: np.ndarray  # v 3
    uv: np.ndarray  # t 2
    normals: np.ndarray  # n 3
    corners: np.ndarray  # f 3 3: point, uv, normal
    material: np.ndarray  # f
    names: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuilds the furniture of the `rooms` data set.")
    parser.add_argument("library", type=Path, help="BlendSwap-CC-0.sh3f")
    parser.add_argument("--output", type=Path, default=FOLDER, help="default: %(default)s")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(args.library) as library:
        index = [convert(library, entry, args.output) for entry in catalogue(library) if entry["folder"] in MODELS]
        licence = library.read("LICENSE.TXT").decode("latin-1").replace("\r\n", "\n")
    missing = set(MODELS) - {entry["name"] for entry in index}
    if missing:
        parser.error(f"{args.library}: lacks the models {', '.join(sorted(missing))}.")
    (args.output / "LICENSE.txt").write_text(licence.rstrip() + "\n", encoding="utf-8")
    lines = ",\n".join(json.dumps(entry) for entry in sorted(index, key=lambda e: e["name"]))
    (args.output / "index.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def catalogue(library: zipfile.ZipFile) -> Iterator[dict[str, str]]:
    """Yield the library's own list: one mapping per model, with its folder's name under `folder`."""
    text = library.read("PluginFurnitureCatalog.properties").decode("latin-1")
    entries: dict[str, dict[str, str]] = {}
    for key, number, value in re.findall(r"^(\w+)#(\d+)=(.*?)\s*$", text, re.M):
        entries.setdefault(number, {})[key] = value
    for entry in entries.values():
        yield {**entry, "folder": PurePosixPath(entry["model"]).parent.name}


def convert(library: zipfile.ZipFile, entry: dict[str, str], output: Path) -> dict[str, Any]:
    name, path = entry["folder"], PurePosixPath(entry["model"].lstrip("/"))
    size = np.array([float(entry[side]) / 100 for side in ("width", "depth", "height")])
    source = read_obj(library.read(str(path)).decode("latin-1"))
    materials = read_mtl(library.read(str(path.with_suffix(".mtl"))).decode("latin-1"))
    for material in materials.values():  # some name a file on their maker's own disk
        if f"{path.parent}/{material.get('map_Kd')}" not in library.namelist():
            material.pop("map_Kd", None)
    arrays = pack(upright(source, size), materials, size, lambda file: library.read(str(path.parent / file)))
    np.savez_compressed(output / f"{name}.npz", **arrays)
    maker = licence_of(library, path.parent)
    print(f"{name}: {len(arrays['faces'])} faces, {(output / f'{name}.npz').stat().st_size // 1024} KiB")
    return {
        "name": name,
        "label": MODELS[name],
        "size": size.round(4).tolist(),
        "surface": surface_of(entry),
        "title": entry["name"],
        "creator": entry["creator"],
        "source": maker,
        "licence": "CC0-1.0",
    }


def surface_of(entry: dict[str, str]) -> float | None:
    """Return the height in metres at which things can stand on it; the catalogue writes -1 for none."""
    centimetres = float(entry.get("dropOnTopElevation", entry["height"]))
    return round(centimetres / 100, 3) if centimetres > 0 else None


def read_obj(text: str) -> Wavefront:
    table: dict[str, list[list[float]]] = {"v": [], "vt": [], "vn": []}
    corners, material, names = [], [], [""]
    for line in text.splitlines():
        kind, _, rest = line.strip().partition(" ")
        if kind in table:
            table[kind].append([float(x) for x in rest.split()[: 2 + (kind != "vt")]])
        elif kind == "usemtl":
            names.append(rest.strip())
        elif kind == "f":
            polygon = [corner(word, [len(table[k]) for k in ("v", "vt", "vn")]) for word in rest.split()]
            for second, third in pairwise(polygon[1:]):
                corners.append([polygon[0], second, third])
                material.append(len(names) - 1)
    points, uv, normals = (np.array(table[k], dtype=float).reshape(-1, 2 + (k != "vt")) for k in ("v", "vt", "vn"))
    return Wavefront(points, uv, normals, np.array(corners), np.array(material), names)


def corner(word: str, counts: list[int]) -> list[int]:
    """Return `7/2/5`, `7//5` or `7` as indices from 0; negative ones count from the end (OBJ specification)."""
    given = [int(x) if x else 0 for x in [*word.split("/"), "", ""][:3]]
    return [i - 1 if i > 0 else count + i if i < 0 else -1 for i, count in zip(given, counts, strict=True)]


def read_mtl(text: str) -> dict[str, dict[str, str]]:
    materials: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in text.splitlines():
        kind, _, rest = line.strip().partition(" ")
        if kind == "newmtl":
            current = materials.setdefault(rest.strip(), {})
        elif rest:
            current[kind] = rest.strip()
    return materials


def upright(mesh: Wavefront, size: np.ndarray) -> Wavefront:
    """Turn from OBJ axes (y up, front at +z) to ours (z up, front at +y), and to the catalogue's size."""
    turn = np.array([[-1, 0, 0], [0, 0, 1], [0, 1, 0]])
    points, normals = mesh.points @ turn.T, mesh.normals @ turn.T
    used = points[np.unique(mesh.corners[..., 0])]
    low, high = used.min(0), used.max(0)
    return Wavefront((points - low) / (high - low) * size, mesh.uv, normals, mesh.corners, mesh.material, mesh.names)


def pack(mesh: Wavefront, materials: dict[str, dict[str, str]], size: np.ndarray, read: Any) -> dict[str, np.ndarray]:
    opaque = [float(materials.get(name, {}).get("d", 1)) >= TRANSPARENT for name in mesh.names]
    keep = np.array(opaque)[mesh.material]
    points, corners, material = simplify(mesh.points, mesh.corners[keep], mesh.material[keep])
    textured = np.array(["map_Kd" in materials.get(name, {}) for name in mesh.names])[material]
    corners[~textured, :, 1] = -1
    corners, vertex = np.unique(corners.reshape(-1, 3), axis=0, return_inverse=True)
    used, material = np.unique(material, return_inverse=True)
    chosen = [materials.get(mesh.names[i], {}) for i in used]
    files = sorted({m["map_Kd"] for m in chosen if "map_Kd" in m})
    faces = vertex.reshape(-1, 3)
    return {
        "vertices": np.round(points[corners[:, 0]] / size * 65535).astype(np.uint16),
        "normals": np.round(vertex_normals(mesh, points, corners, faces) * 127).astype(np.int8),
        "uv": padded(mesh.uv)[corners[:, 1]].astype(np.float32),
        "faces": faces.astype(np.uint16 if len(corners) < 65536 else np.uint32),
        "material": material.astype(np.uint8),
        "colours": np.array([colour(m) for m in chosen], dtype=np.uint8),
        "textures": np.array([files.index(m["map_Kd"]) if "map_Kd" in m else -1 for m in chosen], dtype=np.int8),
        **{f"jpeg_{i}": shrink(read(file)) for i, file in enumerate(files)},
    }


def simplify(points: np.ndarray, corners: np.ndarray, material: np.ndarray) -> tuple[np.ndarray, ...]:
    """Merge points that share a cell, in the finest grid (2 cm at most) that leaves MAX_FACES triangles."""
    for cell in (1e-4, 0.004, 0.006, 0.008, 0.01, 0.013, 0.016, 0.02):
        grid, member = np.unique(np.round(points / cell).astype(int), axis=0, return_inverse=True)
        member = member.reshape(-1)
        merged = np.stack([np.bincount(member, points[:, i]) for i in range(3)], 1)
        merged /= np.bincount(member)[:, None]
        moved = corners.copy()
        moved[..., 0] = member[corners[..., 0]]
        a, b, c = moved[..., 0].T
        alive = (a != b) & (b != c) & (a != c) & first_of_its_kind(moved[..., 0])
        if alive.sum() <= MAX_FACES:
            break
    assert len(grid) == len(merged)
    return merged, moved[alive], material[alive]


def first_of_its_kind(faces: np.ndarray) -> np.ndarray:
    """Return False for a triangle that lies on an earlier one: a ray would meet now this, now that."""
    first = np.zeros(len(faces), dtype=bool)
    first[np.unique(np.sort(faces, axis=1), axis=0, return_index=True)[1]] = True
    return first


def padded(table: np.ndarray) -> np.ndarray:
    """Return a table whose last row, which index -1 meets, is zero."""
    return np.concatenate([table, np.zeros((1, table.shape[1]))])


def vertex_normals(mesh: Wavefront, points: np.ndarray, corners: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Return the file's normals; where it has none, the faces'."""
    a, b, c = points[corners[faces][..., 0]].transpose(1, 0, 2)
    flat = np.zeros((len(corners), 3))
    np.add.at(flat, faces.reshape(-1), np.repeat(np.cross(b - a, c - a), 3, axis=0))
    normals = np.where(corners[:, 2:] >= 0, padded(mesh.normals)[corners[:, 2]], flat)
    return normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)


def colour(material: dict[str, str]) -> list[int]:
    kd = [float(x) for x in material.get("Kd", "0.8 0.8 0.8").split()[:3]]
    return [round(255 * min(max(x, 0.0), 1.0)) for x in kd]


def shrink(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        small = image.convert("RGB")
    small.thumbnail((TEXTURE_SIDE, TEXTURE_SIDE), Image.Resampling.LANCZOS)
    jpeg = io.BytesIO()
    small.save(jpeg, "JPEG", quality=85)
    return np.frombuffer(jpeg.getvalue(), dtype=np.uint8)


def licence_of(library: zipfile.ZipFile, folder: PurePosixPath) -> str:
    """Return the model's page, as its licence file gives it; fails where that file does not say CC0."""
    for name in library.namelist():
        if name.startswith(f"{folder}/") and "license" in name.lower():
            text = library.read(name).decode("utf-8", "replace")
            page = re.search(r"https?://(?:www\.)?blendswap\.com/blends?/(?:view/)?\d+", text)
            if "Creative Commons Zero" in text and page:
                return page[0]
            raise SystemExit(f"{name}: does not say Creative Commons Zero.")
    return "Blend Swap CC-0 library of Sweet Home 3D 1.8"


if __name__ == "__main__":
    main()
