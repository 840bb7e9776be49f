"""How many photographs one core decodes and resizes per second, as the streamed datasets do it.

    python -m benchmarks.decoding [--images 400] [--out decoding.json]

JPEGs of 500 x 375 pixels, quality 90, made here from scikit-learn's photographs; shorter side to 256, centre square.
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.common import run_command
from sgoif.bench.execution.environment import cpu_name
from sgoif.training.streaming import decode_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        files = photographs(Path(folder))
        decode_file(files[0], 256, 3)
        rates = []
        for _ in range(3):
            start = time.process_time()
            for i in range(args.images):
                decode_file(files[i % len(files)], 256, 3)
            rates.append(args.images / (time.process_time() - start))
    rate = round(statistics.median(rates), 1)
    result = {"images_per_core_second": rate, "cpu": cpu_name(), "arch": platform.machine()}
    print(json.dumps(result))
    if args.out:
        args.out.write_text(json.dumps(result) + "\n")


def photographs(folder: Path, n: int = 20) -> list[str]:
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_images

    files, rng = [], np.random.default_rng(0)
    for i in range(n):
        photo = Image.fromarray(load_sample_images().images[i % 2])
        left, top = int(rng.integers(0, photo.width - 500)), int(rng.integers(0, photo.height - 375))
        photo.crop((left, top, left + 500, top + 375)).save(folder / f"{i}.jpg", quality=90)
        files.append(str(folder / f"{i}.jpg"))
    return files


if __name__ == "__main__":
    run_command(main)
