import pytest

from diagnose.checkpoint.find import compare
from diagnose.checkpoint.model import Flaw, Found
from tests.checkpoint.founds import Told, found

FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth")
HOUR = 3600.0


def saved(step: int, **other: tuple[int, float]) -> Found:
    """A checkpoint of five files, written within five seconds at hour `step / 100`."""
    files = {name: (1000, step / 100 * HOUR + i) for i, name in enumerate(FILES)}
    files |= {name.replace("__", "."): told for name, told in other.items()}
    return found(f"checkpoint-{step}", files, step)


def run(*several: Found, digests: dict[str, str] | None = None) -> list[list[Flaw]]:
    compare(several, Told(digests))
    return [one.flaws for one in several]


def test_a_run_in_order_has_no_flaws() -> None:
    assert run(saved(100), saved(200), saved(300)) == [[], [], []]


def test_a_file_as_old_as_in_the_checkpoint_before() -> None:
    digests = same("optimizer.pt", 100, 200)
    flaws = run(saved(100), saved(200, optimizer__pt=(1000, HOUR + 1)), digests=digests)
    why = "has the same age as in checkpoint-100: not written by this save"
    assert flaws == [[], [Flaw("partial", why, "optimizer.pt")]]


def test_copies_with_all_times_scrambled_are_no_flaw() -> None:
    times = [7 * HOUR + number for number in (4, 1, 9, 3, 8, 2, 0, 6, 5, 7)]
    one = found("checkpoint-100", dict(zip(FILES, [(9, t) for t in times[:5]], strict=True)), 100)
    two = found("checkpoint-200", dict(zip(FILES, [(9, t) for t in times[5:]], strict=True)), 200)
    assert run(one, two) == [[], []]


def test_a_file_changed_long_after_all_others() -> None:
    flaws = run(saved(100), saved(200, optimizer__pt=(1000, 5 * HOUR)))
    why = "changed 3 h after all other files: not written by this save"
    assert flaws[1] == [Flaw("partial", why, "optimizer.pt")]


def test_a_file_that_always_comes_late_is_no_flaw() -> None:
    late = [saved(n * 100, optimizer__pt=(1000, n * HOUR + 1800)) for n in (1, 2, 3)]
    assert run(*late)[1:] == [[], []]


def test_a_large_file_may_take_its_time() -> None:
    size = int(2e10)  # half an hour at the slowest
    one = found("step-1", {"a.pt": (9, 1.0), "b.pt": (9, 2.0), "c.pt": (size, 1800.0)}, 1)
    assert run(one) == [[]]


def same(name: str, *steps: int) -> dict[str, str]:
    return {f"/out/checkpoint-{step}/{name}": "same" for step in steps}


def test_the_content_of_the_checkpoint_before() -> None:
    why = "has the same content as in checkpoint-100"
    flaws = run(saved(100), saved(200), saved(300), digests=same("optimizer.pt", 100, 200))
    assert flaws == [[], [Flaw("corrupt", why, "optimizer.pt")], []]


def test_what_never_changes_may_stay_as_it_is() -> None:
    frozen = same("model.safetensors", 100, 200, 300)
    assert run(saved(100), saved(200), saved(300), digests=frozen) == [[], [], []]
    assert run(saved(100), saved(200), digests=same("model.safetensors", 100, 200)) == [[], []]


def test_an_optimizer_counts_steps_and_so_always_changes() -> None:
    flaws = run(saved(100), saved(200), digests=same("optimizer.pt", 100, 200))
    why = "has the same content as in checkpoint-100"
    assert flaws == [[], [Flaw("corrupt", why, "optimizer.pt")]]


def test_names_that_hold_the_step_are_matched() -> None:
    one = found("epoch=0-step=100", {"zero_step100.pt": (9, 1.0), "a.pt": (9, 2.0)}, 100)
    two = found("epoch=0-step=200", {"a.pt": (9, 102.0)}, 200)
    assert run(one, two)[1] == [
        Flaw("partial", "missing: epoch=0-step=100 has it", "zero_step200.pt")
    ]


def test_a_file_that_only_this_one_lacks() -> None:
    two = saved(200)
    del two.parts["scheduler.pt"]
    flaws = run(saved(100), two, saved(300))
    missing = Flaw("partial", "missing: checkpoint-100 has it", "scheduler.pt")
    assert flaws == [[], [missing], []]


def test_a_file_that_only_the_first_one_lacks() -> None:
    one = saved(100)
    del one.parts["scheduler.pt"]
    missing = Flaw("partial", "missing: checkpoint-200 has it", "scheduler.pt")
    assert run(one, saved(200), saved(300)) == [[missing], [], []]
    one.flaws.clear()
    assert run(one, saved(200)) == [[], []]


def test_a_file_that_later_ones_lack_too_was_given_up() -> None:
    two, three = saved(200), saved(300)
    del two.parts["scheduler.pt"], three.parts["scheduler.pt"]
    assert run(saved(100), two, three) == [[], [], []]


def test_ranks_are_left_to_the_layouts() -> None:
    two = saved(200)
    del two.parts["rng_state_1.pth"]
    assert run(saved(100), two)[1] == []


def test_a_file_much_smaller_than_before_and_after() -> None:
    big = {"optimizer__pt": (100_000, 0.0)}
    flaws = run(saved(100, **big), saved(200, optimizer__pt=(20_000, 0.0)), saved(300, **big))
    why = "has 20,000 bytes, and 100,000 in checkpoint-100"
    assert flaws[1] == [Flaw("unknown", why, "optimizer.pt")]


@pytest.mark.parametrize("name", ["model.safetensors.tmp", "a.incomplete", "x/.nfs0000a1"])
def test_left_overs(name: str) -> None:
    one = found("checkpoint-1", {"a.pt": (9, 1.0), name: (9, 1.0)}, 1)
    assert run(one) == [[Flaw("partial", "a temporary file of an unfinished write", name)]]
