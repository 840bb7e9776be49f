"""The `sgoif` command: find wrong labels in a folder of images, review them, and clean the list.

`sgoif bench …` is the benchmark's own command line (`python -m sgoif.bench`).
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from sgoif.errors import UserError
from sgoif.utils.interrupt import sigint_as_keyboard_interrupt
from sgoif.utils.paths import check_environment

SCAN_PACKAGES = {  # module -> package of the extra `scan`
    "PIL": "pillow",
    "safetensors": "safetensors",
    "sklearn": "scikit-learn",
    "timm": "timm",
    "torchvision": "torchvision",
    "huggingface_hub": "huggingface-hub",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The words of the command line; None: those of this process.

    Returns:
        The exit status: 0, 2 after a user's mistake (reported in one line), 130 after Ctrl-C, 141 if the reader of the
        output has gone.
    """
    _prepare_streams()
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["bench"]:
        from sgoif.bench.cli import main as bench

        return bench(argv[1:])
    args = parser().parse_args(argv)
    try:
        check_environment(sys.argv[0])
        with sigint_as_keyboard_interrupt():
            args.run(args)
            sys.stdout.flush()
        return 0
    except UserError as e:
        message = str(e)
    except BrokenPipeError:  # as in `sgoif explain … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as e:
        message = _describe_os_error(e)
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from here", file=sys.stderr)
        return 130
    print(f"error: {message}", file=sys.stderr)
    return 2


def _prepare_streams() -> None:
    """Make output possible where it is closed (`>&-`), and texts that its encoding lacks readable as escapes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _describe_os_error(error: OSError) -> str:
    where = error.filename or "while writing"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({where}); free some room and run again"
    return f"{error.strerror or error}: {where}"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="sgoif", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _scan_arguments(commands.add_parser("scan", help="rank the labels of a folder, a CSV or a data set by suspicion"))
    _apply_arguments(commands.add_parser("apply", help="write the cleaned list of a scan"))
    _explain_arguments(commands.add_parser("explain", help="training images that help or harm one prediction"))
    commands.add_parser("bench", help="the benchmark's steps (sgoif bench --help)")
    return top


def _scan_arguments(p: argparse.ArgumentParser) -> None:
    p.set_defaults(run=_scan)
    p.add_argument(
        "source",
        nargs="?",
        help="FOLDER/<class>/<image>, a CSV of path and label, `digits`, or a torchvision data set",
    )
    p.add_argument(
        "--features",
        type=Path,
        metavar="FILE",
        help="features instead of images: .npy, .npz, .parquet, or a Hugging Face data set on disk",
    )
    p.add_argument("--labels", type=Path, metavar="FILE", help="labels of the features: a CSV, or .npy")
    p.add_argument("--out", type=Path, help="folder to write (default: <name>-scan); the same again goes on with it")
    p.add_argument(
        "--gallery", type=_count, metavar="N", help="examples on the page (default: all flagged, 100 to 500)"
    )
    p.add_argument("--skip-tiny", action="store_true", help="leave classes with very few images out")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    p.add_argument("--threads", type=_count, help="CPU threads (default: all)")
    training = p.add_argument_group("training (defaults follow from the data; they are printed)")
    training.add_argument(
        "--model", help="any timm model by name, or compact, a small residual network (default: by the images' size)"
    )
    training.add_argument(
        "--weights", type=Path, metavar="FILE", help="pretrained weights of the model (default: timm's cache)"
    )
    how = training.add_mutually_exclusive_group()
    how.add_argument("--finetune", action="store_true", help="train the pretrained network, not a head on its features")
    how.add_argument("--from-scratch", action="store_true", help="train a network without pretrained weights")
    training.add_argument("--size", type=int, help="pixels a side that the network sees")
    training.add_argument("--epochs", type=int)
    training.add_argument("--batch-size", type=int)
    training.add_argument("--lr", type=float)
    training.add_argument("--shift", type=int, help="random translation in pixels")
    training.add_argument("--flip", action=argparse.BooleanOptionalAction, help="random mirror images")
    training.add_argument("--seed", type=int)
    reading = p.add_argument_group("reading")
    reading.add_argument("--path-column", default="path", help="of a CSV (default: path)")
    reading.add_argument("--label-column", default="label", help="of a CSV (default: label)")
    reading.add_argument(
        "--checked", type=Path, metavar="FOLDER_OR_CSV", help="images whose labels are known to be right"
    )
    reading.add_argument("--classes", type=Path, metavar="FILE", help="names of the classes, for the page")
    reading.add_argument("--encoding", default="utf-8", help="of a CSV (default: utf-8)")
    reading.add_argument("--data-root", default="data", help="where torchvision's data sets are (default: data)")
    reading.add_argument("--split", default="train", help="part of a torchvision data set (default: train)")
    reading.add_argument(
        "--download", action="store_true", help="let torchvision fetch the data set, and timm the weights"
    )


def _apply_arguments(p: argparse.ArgumentParser) -> None:
    p.set_defaults(run=_apply)
    p.add_argument("scan", type=Path, help="folder of a finished scan")
    p.add_argument("--decisions", type=Path, metavar="FILE", help="export of gallery.html (CSV or JSON)")
    p.add_argument(
        "--above",
        type=float,
        metavar="P",
        help="also remove, without a look, undecided examples whose label is wrong with probability P or more",
    )
    p.add_argument("--out", type=Path, help="the cleaned list (default: cleaned.csv in the scan's folder)")
    tree = p.add_mutually_exclusive_group()
    tree.add_argument("--copy", type=Path, metavar="DIR", help="also copy the files to DIR/<label>/")
    tree.add_argument("--link", type=Path, metavar="DIR", help="also link the files from DIR/<label>/")


def _explain_arguments(p: argparse.ArgumentParser) -> None:
    p.set_defaults(run=_explain)
    p.add_argument("image", help="an image file, or the path of an example as the scan's ranking names it")
    p.add_argument("--scan", type=Path, required=True, help="folder of a finished scan")
    p.add_argument("--label", help="explain this label instead of the predicted one")
    p.add_argument("--top", type=_count, default=10, metavar="N", help="images of each kind (default: 10)")
    p.add_argument("--out", type=Path, help="page to write (default: explain.html in the scan's folder)")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _require_scan_packages() -> None:
    """Raise UserError if a package of the extra `scan` is not installed."""
    missing = [package for module, package in SCAN_PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise UserError(f'{", ".join(missing)} not installed; install what is missing with: pip install "sgoif[scan]"')


def _scan(args: argparse.Namespace) -> None:
    _require_scan_packages()
    if (args.source is None) == (args.features is None):
        raise UserError("name either a folder, CSV or data set of images, or --features FILE with --labels FILE")
    if args.labels is not None and args.features is None:
        raise UserError("--labels is for --features; a folder or CSV of images has its labels in it")
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if not args.download:
        os.environ["HF_HUB_OFFLINE"] = "1"  # pretrained weights come from the cache alone
    from sgoif.scan.features.pipeline import scan_features
    from sgoif.scan.pipeline import scan
    from sgoif.scan.sources.read import ReadOptions
    from sgoif.scan.task import ScanTask

    reading = ReadOptions(
        columns=(args.path_column, args.label_column),
        encoding=args.encoding,
        root=args.data_root,
        split=args.split,
        download=args.download,
    )
    task = ScanTask(args.out, vars(args), args.gallery, args.skip_tiny, reading, args.checked, args.classes)
    if args.features is not None:
        scan_features(args.features, args.labels, task)
    else:
        scan(args.source, task)


def _apply(args: argparse.Namespace) -> None:
    from sgoif.scan.apply import apply

    tree = args.copy or args.link
    done = apply(args.scan, args.decisions, args.above, args.out, tree, link=args.link is not None)
    made = done.decided
    print(f"{done.after} of {done.before} examples are in the cleaned list")
    print(f"Decided  {made['remove']} removed, {made['relabel']} relabelled, {made['keep']} kept as they are")
    if args.above is not None:
        expected = f"about {done.expected_right:.0f} of them with a right label"
        print(f"Unseen   {done.unseen} removed{f', {expected}' if done.unseen else ''}")
    print(f"List     {args.out or args.scan / 'cleaned.csv'}")
    if tree:
        print(f"Files    {tree}")


def _explain(args: argparse.Namespace) -> None:
    _require_scan_packages()
    from sgoif.scan.explain import explain, open_image
    from sgoif.scan.output_folder import image_opener, read_finished, require_free
    from sgoif.scan.page.explain_page import explanation_text, write_page

    page = args.out or args.scan / "explain.html"
    image = [Path(args.image).resolve()] if Path(args.image).is_file() else []
    require_free(page, args.scan, read_finished(args.scan), image)
    found = explain(args.image, args.scan, args.label)
    open_named = image_opener(args.scan)
    write_page(
        page,
        f"Why {found.classes[found.label]}? {args.image}",
        found,
        lambda: open_image(args.image, args.scan),
        lambda i: open_named(found.names[i]),
        args.top,
    )
    print(explanation_text(found, args.top))
    print(f"Page   {page}")
