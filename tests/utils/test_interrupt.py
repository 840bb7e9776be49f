"""A Ctrl-C that something swallows or renames still ends the command; one that is ignored stays ignored."""

import signal
import sys
import threading

import pytest

from sgoif.bench import cli
from sgoif.utils.interrupt import raise_if_pending, sigint_as_keyboard_interrupt
from tests.helpers import lost_interrupts as lost


@pytest.mark.parametrize("lose", [lost.dropped, lost.unraisable, lost.another_error])
def test_a_lost_one_ends_the_command(lose, monkeypatch, capsys):
    report = sys.unraisablehook
    monkeypatch.setattr("sgoif.bench.doctor.diagnose", lambda config: (lose(), ("", True))[1])
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "interrupted; run again to go on from here\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler and sys.unraisablehook is report
    raise_if_pending()  # the next command of this process has not been interrupted


def test_a_long_loop_hears_of_it():
    with pytest.raises(KeyboardInterrupt), sigint_as_keyboard_interrupt():
        raise_if_pending()
        lost.dropped()
        with pytest.raises(KeyboardInterrupt):
            raise_if_pending()


def test_other_errors_are_told_as_ever():
    class Broken:
        def __del__(self):
            raise ValueError("in a finaliser")

    told = []
    sys.unraisablehook, before = lambda found: told.append(found.exc_value), sys.unraisablehook
    try:
        with pytest.raises(ZeroDivisionError), sigint_as_keyboard_interrupt():
            Broken()
            raise ZeroDivisionError
    finally:
        sys.unraisablehook = before
    assert [str(e) for e in told] == ["in a finaliser"]


def test_ignored_stays_ignored_and_other_threads_are_left_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with sigint_as_keyboard_interrupt():
            lost.dropped()
            raise_if_pending()
    finally:
        signal.signal(signal.SIGINT, before)
    found = []
    thread = threading.Thread(target=lambda: found.append(cli.main(["where", "--config", "none.json"])))
    thread.start()
    thread.join()
    assert found == [2]
