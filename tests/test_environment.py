"""environment.yml, pyproject.toml and the locks say the same; the locks carry hashes and no address."""

import re
import tomllib

import pytest
import yaml

from sgoif.utils.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(lines) -> dict[str, str]:
    found = {}
    for line in lines:
        if match := re.match(r"([A-Za-z0-9_.-]+)==([^\s;\\]+)", line):
            found[match[1].lower().replace("_", "-")] = match[2]
    return found


def lock(name: str) -> dict[str, str]:
    return pins((ROOT / name).read_text().splitlines())


def test_every_dependency_is_pinned():
    wanted = (
        PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"] + PROJECT["optional-dependencies"]["cluster"]
    )
    assert len(pins(wanted)) == len(wanted)


def test_conda_environment_has_the_same_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    assert pins(pip) == pins(PROJECT["dependencies"])
    assert not any(line.startswith("-") for line in pip), "Snakemake copies the file, so relative paths break"


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-test.lock", "requirements-cluster.lock"])
def test_lock_agrees_and_is_hashed(name):
    text = (ROOT / name).read_text()
    locked = lock(name)
    wanted = list(PROJECT["dependencies"])
    for extra, pinned in PROJECT["optional-dependencies"].items():
        wanted += pinned if extra in name else []
    assert pins(wanted).items() <= locked.items()
    assert "://" not in text, "a lock names no registry"
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert all("--hash=sha256:" in block for block in blocks)


def test_test_lock_contains_the_run_lock():
    assert lock("requirements.lock").items() <= lock("requirements-test.lock").items()


def test_every_rule_uses_the_one_environment():
    for path in (ROOT / "workflow" / "rules").glob("*.smk"):
        for line in path.read_text().split("conda:")[1:]:
            assert line.split()[0] == "ENVIRONMENT", path
