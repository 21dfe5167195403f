from concurrent.futures import ThreadPoolExecutor

import numpy as np

from densevit.ops.text import draw_text, text_width


def drawn(text: str, size: int = 14) -> np.ndarray:
    image = np.full((32, 160, 3), 255, np.uint8)
    draw_text(image, text, (4, 22), size, (0, 0, 0))
    return image


def test_letters_of_many_scripts_are_drawn_and_fill_their_width() -> None:
    names = ["Straße", "Stra?e", "škola", "дом", "???", "道路", "路道"]
    images = [drawn(name) for name in names]
    assert len({image.tobytes() for image in images}) == len(names)
    for name, image in zip(names, images, strict=True):
        columns = np.flatnonzero((image < 255).any((0, 2)))
        assert columns[0] >= 4 and 4 + text_width(name, 14) - 3 <= columns[-1] <= 4 + text_width(name, 14)


def test_threads_draw_what_one_draws() -> None:
    jobs = [(f"{k} stuhl 道路", 9 + k % 11) for k in range(400)]
    alone = [drawn(*job) for job in jobs]
    with ThreadPoolExecutor(8) as threads:
        assert all(map(np.array_equal, threads.map(lambda job: drawn(*job), jobs), alone))
