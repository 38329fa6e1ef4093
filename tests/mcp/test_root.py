"""Nothing outside of the root is reached, by whatever name."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.errors import InputError
from diagnose.mcp import jobs as mcp_jobs
from diagnose.mcp.jobs import Jobs, Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A root with a job, and beside it a folder with a secret."""
    inside, outside = tmp_path / "inside", tmp_path / "inside-not"
    (inside / "job").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.log").write_text("[rank0]: step 1\n")
    (inside / "job" / "a.log").write_text("[rank0]: step 1\n[rank0]: ValueError: bad batch\n")
    (inside / "out").symlink_to(outside)
    (inside / "out.log").symlink_to(outside / "secret.log")
    (inside / "in.log").symlink_to(inside / "job" / "a.log")
    (inside / "loop").symlink_to(inside / "loop")
    (inside / "nowhere").symlink_to(outside / "nothing")
    return Root(inside)


@pytest.mark.parametrize("given", ["job", "./job/", "job/../job", "in.log", "."])
def test_what_is_inside_is_found(root: Root, given: str) -> None:
    assert root.find(given) == (root.folder / given).resolve()
    assert root.find(str(root.folder / given)) == root.find(given)


@pytest.mark.parametrize(
    "given",
    ["..", "../inside-not", "../inside-not/secret.log", "job/../../inside-not", "/etc/passwd", "/",
     "out", "out/secret.log", "out.log", "nowhere", "job/../out.log"],
)  # fmt: skip
def test_what_is_outside_is_refused_whether_it_exists_or_not(root: Root, given: str) -> None:
    with pytest.raises(InputError, match="is outside"):
        root.find(given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "the path is empty"),
        ("a\0b", "the path is empty"),
        ("file:///etc/passwd", "no URLs"),
        ("s3://a/b", "no URLs"),
        ("jb", 'the root has "job"'),
        ("job/b.log", 'job has "a.log"'),
        ("x" * 5000, "cannot be resolved|no such file"),
        ("loop", "cannot be resolved|no such file"),
    ],
)
def test_what_is_wrong_says_what_there_is(root: Root, given: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        root.find(given)


def test_a_long_folder_is_told_in_part(root: Root) -> None:
    for number in range(20):
        (root.folder / "job" / f"rank{number}.log").write_text("x\n")
    with pytest.raises(InputError, match=r'job has "a\.log", "rank0\.log".* and 13 more$'):
        root.find("job/zzz")
    (root.folder / "none").mkdir()
    with pytest.raises(InputError, match="none is empty"):
        root.find("none/x")


def test_a_root_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x")
    with pytest.raises(InputError, match="must be a folder"):
        Root(tmp_path / "a.log")
    with pytest.raises(InputError, match="no such file or directory"):
        Root(tmp_path / "nothing")


def test_links_that_leave_are_seen(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    assert root.leaving(root.folder / "job") is None
    found = root.leaving(root.folder)
    assert found is not None
    assert found.name in ("out", "out.log", "nowhere")
    (root.folder / "job" / "here").symlink_to(root.folder / "in.log")
    assert root.leaving(root.folder / "job") is None
    (root.folder / "job" / "ckpt.pt").symlink_to(root.folder.parent / "inside-not" / "secret.log")
    assert root.leaving(root.folder / "job") == root.folder / "job" / "ckpt.pt"
    (root.folder / "job" / "ckpt.pt").unlink()
    monkeypatch.setattr(mcp_jobs, "MAX_LINKS", 0)
    with pytest.raises(InputError, match="more than 0 entries"):
        Root(root.folder / "job").leaving(root.folder / "job")


def test_a_job_is_read_without_what_its_links_lead_to(root: Root) -> None:
    opened = Jobs(root, redact=True).of_path(".")
    names = [source.name for source in opened.job.sources if source.kind == "text"]
    assert names == ["job/a.log"]
    assert any("checkpoints were not looked for" in note for note in opened.job.notes)


def test_a_job_is_read_again_when_it_changed(root: Root) -> None:
    jobs = Jobs(root, redact=True)
    first = jobs.of_path("job")
    assert jobs.get("job") is first
    assert jobs.of_path("./job") is first
    (root.folder / "job" / "b.log").write_text("[rank1]: step 1\n")
    second = jobs.of_path("job")
    assert second is not first
    assert len(second.job.sources) == 2


def test_only_so_many_jobs_are_kept(root: Root) -> None:
    jobs = Jobs(root, redact=True)
    pastes = [jobs.of_text(f"[rank{number}]: step 1\n") for number in range(9)]
    assert jobs.get(pastes[8].name) is pastes[8]
    with pytest.raises(InputError, match="call triage with the text again"):
        jobs.get(pastes[0].name)


def test_a_name_near_which_nothing_can_be_listed(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(InputError) as told:
        root.find("job/b.log")
    assert "; " not in str(told.value)
