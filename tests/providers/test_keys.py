"""Keys: found where they should be, kept where nobody else can read them, and never shown."""

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from evener.errors import UsageError
from evener.providers.keys import (
    Key,
    MissingKey,
    account_headers,
    account_values,
    find_key,
    key_file,
    read_keys,
    remove_keys,
    require_key,
    store_key,
)
from evener.providers.rows import load_rows

ROWS = load_rows()
ANTHROPIC = ROWS.provider("anthropic")
GOOGLE = ROWS.provider("google")
OLLAMA = ROWS.provider("ollama")
CLAUDE_AWS = ROWS.provider("claude-aws")
SENTINEL = "sk-sentinel-0123456789"
NAME = "ANTHROPIC_API_KEY"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "evener" / "keys.toml"


def test_the_environment_comes_before_the_file_and_the_first_variable_before_the_second(file: Path) -> None:
    store_key(file, "GEMINI_API_KEY", "from-file")
    both = {"GEMINI_API_KEY": "first", "GOOGLE_API_KEY": "second"}
    cases = [
        (both, "first", "environment variable GEMINI_API_KEY"),
        ({"GOOGLE_API_KEY": " second\n"}, "second", "environment variable GOOGLE_API_KEY"),
        ({"GEMINI_API_KEY": "  "}, "from-file", "key file"),
        ({}, "from-file", "key file"),
    ]
    for environ, secret, source in cases:
        key = find_key(GOOGLE, environ=environ, file=file)
        assert key is not None
        assert (key.secret, key.source) == (secret, source)


def test_one_stored_key_serves_every_row_that_names_its_variable(file: Path) -> None:
    store_key(file, "OPENAI_API_KEY", SENTINEL)
    for name in ("openai", "openai-chat"):
        key = find_key(ROWS.provider(name), environ={}, file=file)
        assert key is not None
        assert key.secret == SENTINEL
    assert find_key(ANTHROPIC, environ={}, file=file) is None


def test_a_missing_key_says_how_to_get_by() -> None:
    """S0.50."""
    with pytest.raises(MissingKey) as caught:
        require_key(GOOGLE, environ={}, file=None)
    for said in ("GEMINI_API_KEY or GOOGLE_API_KEY", "`evener keys set google`", "local:smollm2", "ollama"):
        assert said in str(caught.value)
    assert caught.value.variables == ("GEMINI_API_KEY", "GOOGLE_API_KEY")


def test_where_no_key_is_needed_none_is_missed(file: Path) -> None:
    """S0.50."""
    assert require_key(OLLAMA, environ={}, file=file) is None
    key = require_key(OLLAMA, environ={"OLLAMA_API_KEY": "x"}, file=file)
    assert key is not None
    assert key.secret == "x"


def test_other_values_of_the_account_are_found_or_named(file: Path) -> None:
    environ = {"AWS_DEFAULT_REGION": "eu-west-1"}
    store_key(file, "ANTHROPIC_AWS_WORKSPACE_ID", "wrk-1")
    assert account_values(CLAUDE_AWS, environ=environ, file=file) == {"region": "eu-west-1"}
    assert account_headers(CLAUDE_AWS, environ=environ, file=file) == (("anthropic-workspace-id", "wrk-1"),)
    with pytest.raises(MissingKey, match=r"'region'.*AWS_REGION or AWS_DEFAULT_REGION.*evener keys set AWS_REGION"):
        account_values(CLAUDE_AWS, environ={}, file=None)
    with pytest.raises(MissingKey, match="ANTHROPIC_AWS_WORKSPACE_ID"):
        account_headers(CLAUDE_AWS, environ={}, file=None)


@pytest.mark.parametrize("show", [repr, str, "{0}".format, "%r".__mod__, lambda key: repr([key])])
def test_a_key_does_not_show_itself(show: object) -> None:
    assert callable(show)
    assert "sentinel" not in show(Key(SENTINEL, source="key file", variable=NAME))


@pytest.mark.parametrize("dump", [json.dumps, msgspec.json.encode, pickle.dumps, copy.copy, vars])
def test_a_key_is_not_stored_by_accident(dump: object) -> None:
    assert callable(dump)
    with pytest.raises(TypeError) as caught:
        dump(Key(SENTINEL, source="key file", variable=NAME))
    assert "sentinel" not in str(caught.value)


BAD = {
    "nothing": " \n",
    "a line break": "sk-sentinel\nX-Other: 1",
    "a carriage return": "sk-sentinel\rx",
    "an escape": "sk-sentinel\x1b[31m",
    "a zero": "sk-sentinel\x00",
    "a space": "Bearer sk-sentinel",
    "a letter that no header holds": "sk-sentinel-\u00e9",
    "too much": "sk-sentinel" * 2000,
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_a_key_is_neither_stored_nor_used_nor_repeated(case: str, file: Path) -> None:
    with pytest.raises(UsageError) as caught:
        store_key(file, NAME, BAD[case])
    assert "sentinel" not in str(caught.value)
    assert not file.exists()
    if BAD[case].strip():
        with pytest.raises(UsageError, match=NAME) as caught:
            find_key(ANTHROPIC, environ={NAME: BAD[case]}, file=None)
        assert "sentinel" not in str(caught.value)


# The file.


def test_what_is_stored_is_read_again_and_only_we_may_read_it(file: Path) -> None:
    odd = r'sk-"quoted"\n#[x]=' + "'"
    store_key(file, NAME, f" {odd}\n")
    store_key(file, "OPENAI_API_KEY", SENTINEL)
    store_key(file, "OPENAI_API_KEY", SENTINEL + "-2")
    assert read_keys(file) == {NAME: odd, "OPENAI_API_KEY": SENTINEL + "-2"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["keys.toml"]


def test_what_is_removed_is_gone(file: Path) -> None:
    assert remove_keys(file, [NAME]) == ()
    store_key(file, NAME, SENTINEL)
    store_key(file, "OPENAI_API_KEY", "x")
    assert remove_keys(file, [NAME, "OTHER"]) == (NAME,)
    assert read_keys(file) == {"OPENAI_API_KEY": "x"}
    assert SENTINEL not in file.read_text()


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_umask_does_not_open_the_file(umask: int, file: Path) -> None:
    code = "import sys; from pathlib import Path; from evener.providers.keys import store_key; import os\n"
    code += f"os.umask({umask}); store_key(Path(sys.argv[1]), 'A_KEY', 'x')"
    subprocess.run([sys.executable, "-c", code, str(file)], check=True, timeout=120)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o777])
def test_a_file_that_others_may_read_is_refused_with_the_command_that_mends_it(mode: int, file: Path) -> None:
    store_key(file, NAME, SENTINEL)
    file.chmod(mode)
    for refused in (lambda: read_keys(file), lambda: store_key(file, NAME, "new"), lambda: remove_keys(file, [NAME])):
        with pytest.raises(UsageError, match=f"chmod 600 {file}") as caught:
            refused()
        assert "sentinel" not in str(caught.value)
    file.chmod(0o600)
    assert read_keys(file) == {NAME: SENTINEL}


def test_a_folder_that_others_may_write_to_is_refused(file: Path) -> None:
    store_key(file, NAME, SENTINEL)
    file.parent.chmod(0o770)
    with pytest.raises(UsageError, match=f"chmod 700 {file.parent}"):
        read_keys(file)
    file.parent.chmod(0o755)
    assert read_keys(file) == {NAME: SENTINEL}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(file: Path) -> None:
    store_key(file, NAME, SENTINEL)
    os.chown(file, 12345, -1)
    with pytest.raises(UsageError, match="belongs to another user"):
        read_keys(file)


def test_a_folder_that_cannot_be_looked_into_is_told(tmp_path: Path) -> None:
    file = tmp_path / ("x" * 300) / "keys.toml"
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys(file)
    assert remove_keys(file, [NAME]) == ()


def test_a_folder_that_cannot_be_written_to_is_told_with_the_command_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _: bytes) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    file = tmp_path / "a folder" / "keys.toml"
    monkeypatch.setattr("evener.private_file.write_private", refuse)
    with pytest.raises(UsageError, match=f"Permission denied.*chmod 700 '{file.parent}'") as caught:
        store_key(file, NAME, SENTINEL)
    assert "sentinel" not in str(caught.value)


def test_links_are_refused(file: Path, tmp_path: Path) -> None:
    store_key(file, NAME, SENTINEL)
    real = tmp_path / "real.toml"
    file.rename(real)
    file.symlink_to(real)
    for refused in (lambda: read_keys(file), lambda: store_key(file, NAME, "new")):
        with pytest.raises(UsageError, match="symbolic link"):
            refused()
    assert SENTINEL in real.read_text()
    linked = tmp_path / "linked"
    linked.symlink_to(file.parent)
    with pytest.raises(UsageError, match="symbolic link"):
        store_key(linked / "other.toml", NAME, "new")


def test_a_pipe_or_a_folder_in_its_place_is_refused_without_waiting(file: Path) -> None:
    file.parent.mkdir(mode=0o700)
    os.mkfifo(file, 0o600)
    with pytest.raises(UsageError, match="not a plain file"):
        read_keys(file)
    file.unlink()
    file.mkdir()
    with pytest.raises(UsageError):
        read_keys(file)


@pytest.mark.parametrize(
    "text", ["sk-sentinel", 'A_KEY = "sk-sentinel', "A_KEY = 1", '[A]\nB = "sk-sentinel"', 'a = "x"', 'A = "a b"', 'A = ""']
)
def test_a_file_that_is_not_understood_is_refused_without_repeating_it(text: str, file: Path) -> None:
    store_key(file, NAME, SENTINEL)
    file.write_text(text)
    with pytest.raises(UsageError, match="not understood") as caught:
        read_keys(file)
    assert "sentinel" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_writers_at_the_same_time_lose_nothing(file: Path) -> None:
    code = "import sys; from pathlib import Path; from evener.providers.keys import store_key\n"
    code += "for n in range(8): store_key(Path(sys.argv[1]), f'KEY_{sys.argv[2]}_{n}', 'x')"
    running = [subprocess.Popen([sys.executable, "-c", code, str(file), str(number)]) for number in range(4)]
    assert [one.wait(timeout=120) for one in running] == [0] * 4
    assert len(read_keys(file)) == 32


def test_a_write_that_fails_leaves_the_old_file_and_no_other(file: Path) -> None:
    store_key(file, NAME, SENTINEL)
    code = (
        "import os, sys; from pathlib import Path; from evener.providers import keys\n"
        "def full(*_): raise OSError(28, 'No space left on device')\n"
        "keys.os.fsync = full\n"
        "keys.store_key(Path(sys.argv[1]), 'OTHER', 'x')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, timeout=120, check=False)
    assert done.returncode != 0
    assert read_keys(file) == {NAME: SENTINEL}
    assert [path.name for path in file.parent.iterdir()] == ["keys.toml"]


def test_the_file_stands_beside_the_config() -> None:
    assert key_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/evener/keys.toml")
    assert key_file({}) is None
    assert find_key(ANTHROPIC, environ={}, file=None) is None
