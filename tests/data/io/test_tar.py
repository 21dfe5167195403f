"""Archives are read in place, and what is unsafe, cut short or no archive is refused by name."""

import io
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from tar_files import pack

from densevit.data.io.tar import list_members
from densevit.errors import DataError


def test_files_are_found_in_order_and_read_where_they_lie(tmp_path: Path) -> None:
    files = {"a.jpg": b"one", "deep/er/b.png": b"x" * 1000, f"{'long' * 40}.txt": b"", "c.jpg": b"three"}
    found = list_members(pack(tmp_path / "s.tar", files))
    assert {member.name: member.read() for member in found} == files
    assert [member.name for member in found] == list(files)
    with found[1].file() as path:
        assert path.read_bytes() == b"x" * 1000
        assert path.read_bytes() == b"x" * 1000  # as often as a decoder likes


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_of_every_format_are_those_of_tarfile(tmp_path: Path, format: int) -> None:
    names = ["./a.jpg", "b//ü.png", f"{'d' * 90}/{'e' * 90}.png", *([f"{'long' * 60}.txt"] if format else [])]
    with tarfile.open(tmp_path / "s.tar", "w", format=format) as tar:
        tar.addfile(tarfile.TarInfo("b"))
        for i, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 300 * i, 1.5  # a time that pax writes into a header of its own
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    with tarfile.open(tmp_path / "s.tar") as tar:
        expected = [(PurePosixPath(x.name).as_posix(), x.offset_data, x.size) for x in tar]
    assert [(x.name, x.offset, x.size) for x in list_members(tmp_path / "s.tar")] == expected


def test_headers_that_would_never_end_are_refused(tmp_path: Path) -> None:
    for kind, size, body in (
        (b"x", b"00000000012", b"0 path=x.jpg"),
        (b"0", b"-0000001000", b""),
        (b"L", b"77777777777", b""),
    ):
        header = bytearray(512)
        header[:5], header[124:135], header[148:156], header[156:157] = b"a.jpg", size, b" " * 8, kind
        header[148:156] = b"%06o\0 " % sum(header)
        (tmp_path / "s.tar").write_bytes(bytes(header) + body.ljust(512, b"\0") + bytes(1024))
        with pytest.raises(DataError, match=r"s\.tar: .* is damaged behind byte 0"):
            list_members(tmp_path / "s.tar")


def test_a_decoders_error_names_the_archive_and_the_file_in_it(tmp_path: Path) -> None:
    (member,) = list_members(pack(tmp_path / "s.tar", {"a.jpg": b"one"}))
    with pytest.raises(DataError, match=r"s\.tar/a\.jpg: is no picture"), member.file() as path:
        raise DataError(f"{path}: is no picture")


def test_names_that_lead_out_links_and_devices_are_refused(tmp_path: Path) -> None:
    for name in ("../out.jpg", "/etc/out.jpg", "a/../../out.jpg", "a\\..\\out.jpg"):
        with pytest.raises(DataError, match="leads out"):
            list_members(pack(tmp_path / "s.tar", {name: b"x"}))
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        with tarfile.open(tmp_path / "s.tar", "w") as tar:
            info = tarfile.TarInfo("a.jpg")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        with pytest.raises(DataError, match="no ordinary file"):
            list_members(tmp_path / "s.tar")


def test_an_archive_that_is_cut_short_is_refused_also_between_two_files(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.tar", {f"{i}.jpg": bytes(512) for i in range(5)})
    whole = path.read_bytes()
    for kept in (1024, *(int(len(whole) * share) for share in (0.1, 0.2, 0.3))):  # 1024: exactly the first file
        path.write_bytes(whole[:kept])
        with pytest.raises(DataError, match=r"s\.tar: (is cut short|.*damaged)"):
            list_members(path)


def test_an_archive_that_goes_on_behind_its_end_is_refused_and_not_read_in_part(tmp_path: Path) -> None:
    whole = pack(tmp_path / "s.tar", {f"{i}.jpg": b"x" * 512 for i in range(3)}).read_bytes()
    damaged = bytearray(whole)
    damaged[1024] ^= 1  # the second header begins there: `tarfile` takes it for the end
    for data in (damaged, whole[:1024] + bytes(1024) + whole[2048:], whole + whole):
        (tmp_path / "s.tar").write_bytes(data)
        with pytest.raises(DataError, match=r"s\.tar: goes on behind byte"):
            list_members(tmp_path / "s.tar")
    (tmp_path / "s.tar").write_bytes(whole + bytes(100_000))
    assert len(list_members(tmp_path / "s.tar")) == 3


def test_what_is_no_archive_says_so_and_a_compressed_one_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"not a tar" * 200)
    with pytest.raises(DataError, match="no tar archive"):
        list_members(tmp_path / "a.tar")
    with pytest.raises(DataError, match="gunzip"):
        list_members(pack(tmp_path / "b.tar", {"a.jpg": b"x" * 5000}, "w:gz"))
    with pytest.raises(DataError, match="cannot be read"):
        list_members(tmp_path / "c.tar")
    with pytest.raises(DataError, match="several files of one name"):
        with tarfile.open(tmp_path / "d.tar", "w") as tar:
            for _ in range(2):
                tar.addfile(tarfile.TarInfo("a.jpg"))
        list_members(tmp_path / "d.tar")
