"""A colour video of the depth of any clip, without flicker: python examples/video.py CHECKPOINT CLIP FOLDER

CLIP is a video file, a folder of frames or camera:0; the video is FOLDER/CLIP.color.mp4.
"""

import sys

import densevit


def main(checkpoint: str, clip: str, folder: str) -> None:
    print(densevit.predict(checkpoint, clip, folder, formats=["mp4"], stabilize=True, overwrite=True))


if __name__ == "__main__":
    main(*sys.argv[1:4])
