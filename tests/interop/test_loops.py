"""The loops of timm and Lightning, as their examples write them."""

import importlib.util

import pytest


def test_timm_loop_finds_wrong_labels(capsys):
    from examples import timm_loop

    assert timm_loop.measure(0)["found"] > 0.8, timm_loop.measure(0)
    timm_loop.main()
    assert f"{timm_loop.measure(0)['found']:.1%}" in capsys.readouterr().out


def test_lightning_loop_finds_wrong_labels():
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed here")
    from examples import lightning_loop

    assert lightning_loop.measure(0)["found"] > 0.85, lightning_loop.measure(0)
