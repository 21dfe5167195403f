"""Videos, folders of frames and cameras as streams of frames; what is wrong with them is said."""

import gc
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from films import FakeCamera, frame, write_film, write_frames

from densevit.data.io.depth_video import Coding, DepthVideoWriter, join_depth_videos, read_depth_video
from densevit.data.io.video import FrameFolder, LiveCamera, TimeSpan, VideoFile, natural_order, open_video, upright
from densevit.errors import ConfigError, DataError

FRAMES = [frame(3 * i) for i in range(20)]


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_film(tmp_path_factory.mktemp("films") / "film.mp4", FRAMES)


def test_a_film_gives_its_frames_in_order_with_their_times(film: Path) -> None:
    video = VideoFile(film)
    found = list(video.frames())
    assert [f.index for f in found] == list(range(20)) and video.length() == 20 and video.rate() == 10
    np.testing.assert_allclose([f.time for f in found], np.arange(20) / 10, atol=1e-4)
    for given, read in zip(FRAMES, found, strict=True):
        assert np.abs(given.astype(int) - read.image).mean() < 6
    assert video.problems == []


def test_a_name_that_reads_as_a_protocol_is_a_file(film: Path, here: Path) -> None:
    Path("12:30 ride.mp4").symlink_to(film)
    assert open_video("12:30 ride.mp4").length() == 20


def test_times_of_a_variable_frame_rate_are_exact(tmp_path: Path) -> None:
    times = [0.0, 0.033, 0.05, 0.4, 0.41, 1.2]
    path = write_film(tmp_path / "vfr.mp4", FRAMES[:6], times=times)
    np.testing.assert_allclose([f.time for f in VideoFile(path).frames()], times, atol=1e-4)


def test_ten_bits_are_read(tmp_path: Path) -> None:
    path = write_film(tmp_path / "ten.mkv", FRAMES[:3], codec="ffv1", pix_fmt="yuv420p10le")
    found = list(VideoFile(path).frames())
    assert len(found) == 3 and found[0].image.dtype == np.uint8
    assert np.abs(FRAMES[0].astype(int) - found[0].image).mean() < 6


@pytest.mark.parametrize(
    ("turn", "shown"),
    [
        ((0, -1, 1, 0), np.rot90(FRAMES[0])),
        ((0, 1, -1, 0), np.rot90(FRAMES[0], -1)),
        ((-1, 0, 0, -1), np.rot90(FRAMES[0], 2)),
        ((-1, 0, 0, 1), FRAMES[0][:, ::-1]),  # was upside down
        ((1, 0, 0, -1), FRAMES[0][::-1]),
        ((0, 1, 1, 0), FRAMES[0].swapaxes(0, 1)),
    ],
)
def test_a_frame_is_turned_upright_as_its_file_says(turn: tuple[int, ...], shown: np.ndarray) -> None:
    matrix = np.array([*turn[:2], 0, *turn[2:], 0, 0, 0, 1], np.int32) << 16
    picture = SimpleNamespace(width=64, to_ndarray=lambda format, width: FRAMES[0][:, :width])
    np.testing.assert_array_equal(upright(picture, None, matrix), shown)


def test_frames_are_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    """Which, in a forked loader worker, waited for ever for the threads of frames that the parent had read."""
    path = write_film(tmp_path / "a.mp4", FRAMES[:6])
    gc.collect()
    gc.disable()
    try:
        assert len(list(VideoFile(path).frames())) == 6
        assert [x for x in gc.get_objects() if type(x).__name__ == "VideoFrame" and hasattr(x, "planes")] == []
    finally:
        gc.enable()


def test_pixels_become_square(tmp_path: Path) -> None:
    """16:11, of television: 64 stored columns are shown as 64 * 16 / 11 = 93."""
    path = write_film(tmp_path / "a.mp4", FRAMES[:2], options={"aspect": "16:11"})
    found = list(VideoFile(path).frames())
    assert found[0].image.shape == (48, 93, 3)
    assert np.abs(cv2.resize(FRAMES[0], (93, 48)).astype(int) - found[0].image).mean() < 6


def test_frames_of_an_avi_that_are_stored_in_another_order_have_their_times(tmp_path: Path) -> None:
    path = write_film(tmp_path / "a.avi", FRAMES, options={"x264-params": "bframes=2:b-adapt=0:keyint=8"})
    found = list(VideoFile(path).frames())
    np.testing.assert_allclose([f.time for f in found], np.arange(20) / 10, atol=1e-4)
    part = list(VideoFile(path).frames(TimeSpan(0.9, 1.3)))
    np.testing.assert_array_equal([f.image for f in part], [f.image for f in found[9:14]])


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (TimeSpan(start=0.5), range(5, 20)),
        (TimeSpan(start=1.0, end=1.3), range(10, 14)),
        (TimeSpan(every=7), (0, 7, 14)),
        (TimeSpan(start=0.95, end=1.5, every=2), (10, 12, 14)),
    ],
)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_span_is_the_same_of_a_file_and_a_folder(
    film: Path, tmp_path: Path, span: TimeSpan, expected: range, kind: str
) -> None:
    source = VideoFile(film) if kind == "file" else FrameFolder(write_frames(tmp_path / "frames", FRAMES), 10)
    found = list(source.frames(span))
    assert [round(10 * f.time) for f in found] == list(expected) and [f.index for f in found] == list(range(len(found)))
    assert source.length(span) == len(found) and source.problems == []
    later = list(source.frames(span, skip=2))
    assert [(f.index, f.time) for f in later] == [(f.index, f.time) for f in found[2:]]
    np.testing.assert_array_equal(later[0].image, found[2].image)


def test_a_span_that_is_none_is_refused() -> None:
    for wrong in ({"start": -1.0}, {"start": 2.0, "end": 1.0}, {"every": 0}):
        with pytest.raises(ConfigError, match="seconds are 0 <= start <= end"):
            TimeSpan(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "playlist",
    ["#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:2,\n{film}\n#EXT-X-ENDLIST\n", "ffconcat version 1.0\nfile {film}\n"],
)
def test_a_playlist_opens_no_other_file(tmp_path: Path, playlist: str) -> None:
    import av

    (tmp_path / "film.ts").symlink_to(write_film(tmp_path / "segment.mp4", FRAMES))
    (tmp_path / "list.m3u8").write_text(playlist.format(film="film.ts"))
    with pytest.raises(DataError, match="cannot be read as a video"):
        list(VideoFile(tmp_path / "list.m3u8").frames())
    with av.open(str(tmp_path / "list.m3u8")) as followed:  # FFmpeg itself does
        assert followed.streams.video


def test_a_truncated_film_and_a_file_without_video_are_refused_with_the_reason(film: Path, tmp_path: Path) -> None:
    import av

    (tmp_path / "cut.mp4").write_bytes(film.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"cut.mp4: cannot be read as a video .*may be truncated"):
        list(VideoFile(tmp_path / "cut.mp4").frames())
    with av.open(str(tmp_path / "sound.mkv"), "w") as out:
        stream = out.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), layout="mono")
        sound.rate = 8000
        out.mux(stream.encode(sound))
    with pytest.raises(DataError, match=r"holds no video, only audio"):
        list(VideoFile(tmp_path / "sound.mkv").frames())
    with pytest.raises(DataError, match="no such file, folder or camera"):
        open_video(tmp_path / "none.mp4")


def test_an_unreadable_frame_in_the_middle_is_said_and_the_others_are_given(film: Path, tmp_path: Path) -> None:
    data = bytearray(film.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    (tmp_path / "bad.mp4").write_bytes(data)
    video = VideoFile(tmp_path / "bad.mp4")
    found = list(video.frames())
    assert 15 <= len(found) <= 20 and video.problems and "s" in video.problems[0]
    frames = write_frames(tmp_path / "frames", FRAMES[:5])
    (frames / "2.png").write_bytes(b"no image")
    folder = FrameFolder(frames)
    assert [f.name for f in folder.frames()] == ["0", "1", "3", "4"] and "2.png" in folder.problems[0]


def test_a_film_that_lost_its_end_says_how_many_frames_are_there(tmp_path: Path) -> None:
    whole = write_film(tmp_path / "whole.mp4", FRAMES, options={"movflags": "+faststart"})
    moved = tmp_path / "front.mp4"
    import av

    with av.open(str(whole)) as source, av.open(str(moved), "w", options={"movflags": "+faststart"}) as out:
        stream = out.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)
    data = moved.read_bytes()
    assert data.find(b"moov") < data.find(b"mdat")
    (tmp_path / "cut.mp4").write_bytes(data[: len(data) * 2 // 3])
    video = VideoFile(tmp_path / "cut.mp4")
    assert 5 < len(list(video.frames())) < 20
    assert any("it ends after" in text or "cannot be decoded" in text for text in video.problems)


def test_a_film_without_a_list_of_frames_that_lost_its_end_says_when(tmp_path: Path) -> None:
    whole = write_film(tmp_path / "film.mkv", FRAMES * 3)
    assert len(list((video := VideoFile(whole)).frames())) == 60 and not video.problems
    data = whole.read_bytes()
    whole.write_bytes(data[: len(data) // 3])
    assert 2 < len(list((video := VideoFile(whole)).frames())) < 60
    assert any("it ends after" in text for text in video.problems), video.problems


def test_a_size_that_changes_ends_the_clip_with_a_message(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "frames", FRAMES[:3])
    write_frames(tmp_path / "other", [frame(0, (40, 64))])
    (tmp_path / "other/0.png").rename(folder / "3.png")
    source = FrameFolder(folder)
    assert len(list(source.frames())) == 3
    assert source.problems == [
        "it ends before 3.png: that frame is 40x64, those before 48x64, and a video has one size"
    ]


def test_frames_are_in_natural_order(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "frames", FRAMES[:12])
    assert [f.name for f in FrameFolder(folder).frames()] == [str(i) for i in range(12)]
    times = ["9.5", "1305031452.59202", "1305031452.6", "1305031452.601", "1305031453.0"]
    timed = write_frames(tmp_path / "times", FRAMES[: len(times)])
    for number, time in enumerate(times):
        (timed / f"{number}.png").rename(timed / f"{time}.png")
    assert [f.name for f in FrameFolder(timed).frames()] == times == sorted(times, key=natural_order)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no image"):
        open_video(tmp_path / "empty")


def test_a_camera_gives_its_newest_frame_and_says_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cv2, "VideoCapture", partial(FakeCamera, frames=FRAMES[:4]))
    camera = open_video("camera:0")
    assert isinstance(camera, LiveCamera)
    found = list(camera.frames())
    np.testing.assert_array_equal(found[-1].image, FRAMES[3])  # those that nobody took in time are dropped
    assert "no more frames" in camera.problems[0]
    with pytest.raises(DataError, match="no such camera"):
        next(open_video("camera:1").frames())


def test_a_depth_video_is_read_back_to_half_a_unit_whatever_parts_it_is_of(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    maps = [draw.uniform(0.5, 60, (37, 51)).astype(np.float32) for _ in range(7)]
    maps[3][:5] = np.nan
    times = [0.25, 0.283, 0.4, 1.0, 1.001, 5.5, 9.75]
    coding = Coding(1000.0)
    paths = []
    for number, (first, last) in enumerate([(0, 7), (0, 3), (3, 6), (6, 7)]):
        paths.append(tmp_path / f"{number}.mkv")
        with DepthVideoWriter(paths[-1], (37, 51), coding) as writer:
            for i in range(first, last):
                writer.add(coding.encode(maps[i]), times[i])
    for name in ("joined.mkv", "again.mkv"):
        join_depth_videos(paths[1:], tmp_path / name)
    assert (tmp_path / "joined.mkv").read_bytes() == (tmp_path / "again.mkv").read_bytes()
    for path in (paths[0], tmp_path / "joined.mkv"):
        found = list(read_depth_video(path))
        np.testing.assert_allclose([f.time for f in found], times, atol=1e-6)
        for given, read in zip(maps, found, strict=True):
            np.testing.assert_allclose(read.values, given, atol=0.5 / 1000 + 1e-5)
            assert read.kind == "metric"


def test_another_video_is_no_depth_video(film: Path) -> None:
    with pytest.raises(DataError, match="is no depth video of densevit"):
        next(read_depth_video(film))


def test_frames_whose_files_differ_in_the_suffix_alone_keep_names_of_their_own(tmp_path: Path) -> None:
    folder = write_frames(tmp_path, FRAMES[:2])
    first = sorted(folder.iterdir())[0]
    first.with_suffix(".bmp").write_bytes(first.read_bytes())
    names = [f.name for f in FrameFolder(folder).frames()]
    assert len(names) == len(set(names)) == 3 and first.name in names
