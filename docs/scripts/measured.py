"""Writes measured tables and sentences into README.md and docs from what is published: `make docs`.

The lines between `<!-- NAME -->` and `<!-- /NAME -->` are replaced, nothing else. A test checks that they are current.
"""

import re

import loop_table
import other_tables
import readme_sentences
import scan_table
import sentences
import tables
from records import ROOT, Measured

PLACES = {
    "README.md": [readme_sentences.in_short, tables.overview, readme_sentences.paper],
    "docs/results/limits.md": [sentences.not_yet, sentences.most_wrong],
    "docs/lab-notebook/outside-the-recipe.md": [loop_table.loops, loop_table.loops_counted],
    "docs/scan.md": [scan_table.scan_beside_cleanlab, scan_table.tables_beside_cleanlab],
    "docs/results/measured.md": [
        other_tables.the_run,
        tables.over_seeds,
        tables.one_draw,
        tables.detection_20,
        tables.detection_40,
        tables.detection_70,
        tables.detection_other,
        tables.detection_100,
        tables.detection_photos,
        tables.detection_long,
        sentences.long_training,
        sentences.parts_alone,
        tables.watching,
        sentences.two_trainings,
        tables.top,
        tables.seeds,
        tables.every_seed,
        tables.clean_labels,
        tables.cleaning,
        sentences.cleaned,
        sentences.removed,
        other_tables.out_of_distribution,
        other_tables.ood_on_mnist,
        other_tables.older_ood,
        other_tables.cost,
        other_tables.growth,
        other_tables.packages,
        other_tables.small_runs,
        other_tables.verdicts,
        sentences.reproduced,
        other_tables.ablations,
        other_tables.goals,
    ],
}


def page(path: str, measured: Measured) -> str:
    text = (ROOT / path).read_text()
    for write in PLACES[path]:
        begin, end = f"<!-- {write.__name__} -->\n", f"<!-- /{write.__name__} -->"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        block = begin + "\n".join(write(measured)) + "\n" + end
        text, count = re.subn(pattern, lambda _, block=block: block, text, flags=re.S)
        if count != 1:
            raise SystemExit(f"error: {path} has {count} places for {write.__name__}, where one is expected")
    return text


if __name__ == "__main__":
    published = Measured()
    for path in PLACES:
        (ROOT / path).write_text(page(path, published))
        print(f"wrote the tables of {path}")
