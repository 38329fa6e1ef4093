"""What stands in angle brackets is known, and filled in only with plain words."""

import pytest

from diagnose.catalog.remedies import example, fill, placeholders_in, unknown


def test_placeholders_are_found_and_others_are_not() -> None:
    text = "ssh <node> 'grep -c x < in.log' && echo '<|im_end|>' <<EOF <pid of rank 0>"
    assert placeholders_in(text) == ["node", "pid of rank 0"]
    assert list(unknown(text)) == ["pid of rank 0"]
    assert example("nc -vz <head> <port>") == "nc -vz word word"


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("gpu07", "ssh gpu07"),
        ("gpu07.cluster.example", "ssh gpu07.cluster.example"),
        ("10.0.0.7", "ssh 10.0.0.7"),
        ("", "ssh <node>"),
        ("gpu07; reboot", "ssh <node>"),
        ("$(reboot)", "ssh <node>"),
        ("-oProxyCommand=reboot", "ssh <node>"),
        ("a\nb", "ssh <node>"),
        ("'a'", "ssh <node>"),
    ],
)
def test_a_value_out_of_a_log_cannot_become_a_command(value: str, filled: str) -> None:
    assert fill("ssh <node>", {"node": value}) == filled


def test_what_is_not_known_stays() -> None:
    assert fill("nc -vz <head> <port>", {"port": "29500"}) == "nc -vz <head> 29500"
