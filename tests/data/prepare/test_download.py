"""`densevit.data.download` from a local server: ranges, broken connections, wrong checksums, full disks, no network."""

import errno
import hashlib
import http.server
import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from densevit.data.datasets.base import DATASETS
from densevit.data.prepare import download as module
from densevit.data.prepare import fetch as fetching
from densevit.data.prepare.download import BY_HAND, SOURCES, Archive, DownloadSource, download
from densevit.data.prepare.fetch import fetch
from densevit.errors import ConfigError, DataError, StorageError

CONTENT = bytes(range(256)) * 4000
CHECKSUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
LOCAL = {
    "coco", "digits", "folder", "huggingface", "middlebury_motorcycle", "mix", "pseudo_labels", "recording", "rooms",
    "webdataset", "yolo",
}  # fmt: skip


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; each answer breaks off after `limit` bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/a.bin": CONTENT}
        self.limit = 1 << 30
        self.ranges = True
        self.asked: list[str | None] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, *_: object) -> None:
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        content, given = self.server.files.get(self.path), self.headers["Range"]
        self.server.asked.append(given)
        if content is None:
            self.send_error(404)
            return
        start = int(given.removeprefix("bytes=").rstrip("-")) if given and self.server.ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:][: self.server.limit])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def test_a_file_comes_whole_and_is_not_fetched_twice(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new/a.bin"
    assert fetch(server.url("/a.bin"), target, CHECKSUM) == target
    assert target.read_bytes() == CONTENT
    fetch(server.url("/a.bin"), target, CHECKSUM)
    assert server.asked == [None]
    assert list(target.parent.iterdir()) == [target]


def test_a_broken_connection_is_taken_up_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.limit = 400_000
    fetch(server.url("/a.bin"), tmp_path / "a.bin", CHECKSUM)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=400000-", "bytes=800000-"]


def test_a_later_call_goes_on_with_what_an_earlier_one_left(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "a.bin.part"
    part.write_bytes(CONTENT[:1000])
    fetch(server.url("/a.bin"), tmp_path / "a.bin", CHECKSUM)
    assert server.asked == ["bytes=1000-"] and not part.exists()
    (tmp_path / "a.bin").unlink()
    part.write_bytes(CONTENT)  # stopped between the last byte and the checksum
    fetch(server.url("/a.bin"), tmp_path / "a.bin", CHECKSUM)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    (tmp_path / "a.bin").unlink()
    part.write_bytes(CONTENT + b"more")  # a file that has become shorter
    fetch(server.url("/a.bin"), tmp_path / "a.bin", CHECKSUM)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "a.bin.part").write_bytes(b"x" * 5000)
    fetch(server.url("/a.bin"), tmp_path / "a.bin", CHECKSUM)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_connection_that_brings_nothing_ends_with_what_came_kept(server: Server, tmp_path: Path) -> None:
    server.limit = 0
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1234])
    with pytest.raises(DataError, match=r"broke after 1,234 bytes .*a later call continues"):
        fetch(server.url("/a.bin"), tmp_path / "a.bin", CHECKSUM)
    assert len(server.asked) == fetching.TRIES
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:1234]


def test_a_wrong_checksum_leaves_nothing_and_a_users_own_file_alone(server: Server, tmp_path: Path) -> None:
    wrong = f"md5:{'0' * 32}"
    with pytest.raises(DataError, match="checksum md5:[0-9a-f]+, expected md5:0000"):
        fetch(server.url("/a.bin"), tmp_path / "a.bin", wrong)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match="remove it to fetch it anew"):
        fetch(server.url("/a.bin"), tmp_path / "a.bin", CHECKSUM)
    assert (tmp_path / "a.bin").read_bytes() == b"mine"


def test_a_full_disk_is_known_before_and_said_in_the_middle(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(fetching, "require_free_space", lambda *_: None)
        patch.setattr(type(tmp_path), "open", lambda *_: Full())
        with pytest.raises(StorageError, match=r"a\.bin\.part: cannot be written \(No space left on device\)"):
            fetch(server.url("/a.bin"), tmp_path / "a.bin", CHECKSUM)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(StorageError, match="no room for 1,024,000 bytes"):
        fetch(server.url("/a.bin"), tmp_path / "a.bin", CHECKSUM)
    assert len(server.asked) == 2


def test_without_a_connection_one_sentence_has_the_address_and_the_folder(server: Server, tmp_path: Path) -> None:
    address = server.url("/a.bin")
    with pytest.raises(DataError, match=r"server says 404"):
        fetch(server.url("/gone.bin"), tmp_path / "b.bin", CHECKSUM)
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError) as caught:
        fetch(address, tmp_path / "a.bin", CHECKSUM)
    assert str(caught.value) == f"no connection to {address}; put that file into {tmp_path} and call again."


@pytest.fixture
def small_source(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """`diode` with an archive of one scene."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        info = tarfile.TarInfo("val/indoors/scene_00019/scan_00183/a.png")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"png"))
    server.files["/val.tar.gz"] = packed.getvalue()
    archive = Archive(server.url("/val.tar.gz"), f"md5:{hashlib.md5(packed.getvalue()).hexdigest()}", 0)
    parts = {"val": archive, "train": Archive(server.url("/train.tar.gz"), "md5:0", 81)}
    source = DownloadSource("https://page.org", "MIT", True, parts)
    closed = DownloadSource("https://page.org", "research only", False, parts)
    monkeypatch.setattr(module, "SOURCES", {"diode": source, "ade20k": closed})
    return server


def test_a_data_set_is_unpacked_where_its_reader_looks(
    small_source: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DENSEVIT_DATASETS", str(tmp_path))
    folder = download("diode")
    assert folder == tmp_path / "diode"
    assert (folder / "val/indoors/scene_00019/scan_00183/a.png").read_bytes() == b"png"
    assert not (folder / "val.tar.gz").exists()
    assert [*json.loads((folder / "downloads.json").read_text())] == ["val.tar.gz"]
    download("diode")
    assert small_source.asked == [None]
    download("diode", tmp_path / "kept", keep_archives=True)
    assert (tmp_path / "kept/val.tar.gz").exists()


def test_terms_are_accepted_before_anything_is_fetched(small_source: Server, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ade20k: research only\. Read https://page\.org; accept_terms=True"):
        download("ade20k", tmp_path)
    assert small_source.asked == []
    download("ade20k", tmp_path, accept_terms=True)
    assert (tmp_path / "val").is_dir()


def test_other_data_sets_get_their_page_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"nyu: fetch it by hand from https://cs\.nyu\.edu.* into {tmp_path}"):
        download("nyu", tmp_path)
    with pytest.raises(ConfigError, match="diode has no part 'test'; there are val, train"):
        download("diode", tmp_path, parts=["test"])
    with pytest.raises(ConfigError, match="Did you mean 'diode'"):
        download("diod", tmp_path)


def test_every_published_data_set_is_known() -> None:
    ours = {name for name, made in DATASETS.components.items() if made.__module__.startswith("densevit.")}
    assert {*SOURCES} | {*BY_HAND} == ours - LOCAL
    assert not {*SOURCES} & {*BY_HAND}
