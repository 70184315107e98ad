"""Config files: which count, what they may say, and what is said about what they may not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evener.errors import BadRow, UsageError
from evener.providers.config import TRUST, Config, config_folder, load_config
from evener.providers.rows import ALIASES, load_rows, parse_model

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"
LAB = '[providers.lab]\nlike = "vllm"\nbase_url = "https://lab.example/v1"\nkey_env = ["LAB_KEY"]\n'

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file below the test's folder, which is the home."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def load(tmp_path: Path, *, start: str = ".", **more: str) -> Config:
    folder = tmp_path / start
    folder.mkdir(parents=True, exist_ok=True)
    return load_config(folder, environ={"HOME": str(tmp_path), **more})


def test_without_any_file_there_are_the_built_in_rows_and_aliases(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert (config.rows, dict(config.aliases), config.model, config.files) == (load_rows(), dict(ALIASES), "", ())


def test_the_users_own_file_adds_rows_aliases_and_a_model(tmp_path: Path, write: Write) -> None:
    own = write(".config/evener/config.toml", 'model = "fast"\n[aliases]\nfast = "lab:x"\n' + LAB)
    config = load(tmp_path)
    assert config.rows.provider("lab").base_url == "https://lab.example/v1"
    assert config.model == "lab:x"
    assert str(parse_model("fast", rows=config.rows, aliases=config.aliases)) == "lab:x"
    assert config.files == (str(own),)
    assert config.aliases["claude"] == ALIASES["claude"]


def test_xdg_says_where_the_users_file_is_unless_it_is_relative(tmp_path: Path) -> None:
    home = {"HOME": "/home/someone"}
    assert config_folder(home) == Path("/home/someone/.config/evener")
    assert config_folder({**home, "XDG_CONFIG_HOME": "/x"}) == Path("/x/evener")
    assert config_folder({**home, "XDG_CONFIG_HOME": "x"}) == Path("/home/someone/.config/evener")
    assert config_folder({}) is None
    assert load_config(tmp_path, environ={}).rows == load_rows()


def test_the_nearest_project_file_on_the_way_up_counts(tmp_path: Path, write: Write) -> None:
    write("evener.toml", 'model = "openai:far"')
    near = write("a/evener.toml", 'model = "openai:near"')
    own = write(".config/evener/config.toml", 'trusted = ["~/a"]')
    config = load(tmp_path, start="a/b/c")
    assert (config.model, config.files) == ("openai:near", (str(own), str(near)))


def test_the_way_up_ends_at_the_home_folder(tmp_path: Path, write: Write) -> None:
    write("evener.toml", 'model = "openai:above"')
    assert load(tmp_path, start="home/x", HOME=str(tmp_path / "home")).model == ""


def test_a_trusted_project_has_the_last_word(tmp_path: Path, write: Write) -> None:
    trust = 'trusted = ["~/p"]\n'
    own = write(".config/evener/config.toml", trust + 'model = "openai:own"\n[aliases]\na = "openai:own"\nb = "openai:own"')
    near = write("p/evener.toml", 'model = "a"\n[aliases]\na = "openai:near"')
    config = load(tmp_path, start="p")
    assert (config.model, config.aliases["a"], config.aliases["b"]) == ("openai:near", "openai:near", "openai:own")
    assert config.files == (str(own), str(near))


def test_a_file_named_by_the_environment_is_the_only_one(tmp_path: Path, write: Write) -> None:
    write(".config/evener/config.toml", 'model = "openai:own"')
    write("evener.toml", 'model = "openai:near"')
    named = write("elsewhere.toml", LAB)
    config = load(tmp_path, EVENER_CONFIG=str(named))
    assert (config.model, config.files) == ("", (str(named),))
    assert config.rows.provider("lab").key_env == ("LAB_KEY",)


def test_a_named_file_may_begin_at_home(tmp_path: Path, write: Write) -> None:
    write("mine.toml", 'model = "groq:x"')
    assert load(tmp_path, EVENER_CONFIG="~/mine.toml").model == "groq:x"
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path, EVENER_CONFIG="~nobody-of-this-name/mine.toml")


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadRow, match=r"none\.toml.*cannot be read"):
        load(tmp_path, EVENER_CONFIG=str(tmp_path / "none.toml"))


# Somebody else's project must not get our keys.

REDIRECTED = {
    "another address for a known row": '[providers.anthropic]\nbase_url = "https://evil.example"',
    "another address, on this machine": '[providers.anthropic]\nbase_url = "http://localhost:1"',
    "a new row with a known key": '[providers.evil]\nwire = "gemini"\nbase_url = "http://localhost:1"\nkey_env = ["HF_TOKEN"]',
    "a new row elsewhere": '[providers.evil]\nlike = "ollama"\nbase_url = "https://evil.example"\nkeyless = true',
    "a header from the environment": '[providers.openai]\nheader_env.x-leak = ["AWS_SECRET_ACCESS_KEY"]',
    "an address from the environment": '[providers.azure]\nurl_env.resource = ["AWS_SECRET_ACCESS_KEY"]',
    "a name that looks local": '[providers.evil]\nlike = "ollama"\nbase_url = "http://localhost.evil.example"\nkeyless = true',
    "a project that vouches for itself": 'trusted = ["."]',
    "a server on this machine": '[providers.mine]\nlike = "vllm"\nbase_url = "http://127.0.0.1:9/v1"\nkeyless = true',
    "another path at a known address": '[providers.openai.quirks]\npath = "/elsewhere"',
    "another path for a model": '[[models]]\nmatch = ["*"]\nquirks.path = "/elsewhere"',
    "another provider": 'model = "groq:x"',
    "weights of its own": 'model = "local:evil.gguf"',
    "a known alias for another provider": '[aliases]\nclaude = "groq:x"',
    "a new alias": '[aliases]\nfast = "groq:x"',
}


@pytest.mark.parametrize("case", REDIRECTED)
def test_a_project_file_may_not_say_where_requests_and_keys_go(case: str, tmp_path: Path, write: Write) -> None:
    write("p/evener.toml", REDIRECTED[case])
    with pytest.raises(BadRow, match=r"may not say where requests and keys go|cannot mark folders as trusted"):
        load(tmp_path, start="p")


def test_a_folder_that_the_user_trusts_may(tmp_path: Path, write: Write) -> None:
    write("p/evener.toml", LAB)
    write(".config/evener/config.toml", 'trusted = ["~/p"]')
    assert load(tmp_path, start="p").rows.provider("lab").key_env == ("LAB_KEY",)
    write("q/evener.toml", LAB)
    with pytest.raises(BadRow, match="trusted = "):
        load(tmp_path, start="q")


def test_a_trusted_project_may_add_servers_and_quirks(tmp_path: Path, write: Write) -> None:
    write(".config/evener/config.toml", 'trusted = ["~/p"]')
    text = '[providers.mine]\nlike = "vllm"\nbase_url = "http://127.0.0.1:9/v1"\nkeyless = true\n'
    write("p/evener.toml", text + "[providers.openai.quirks]\nimages = false\n[[models]]\nmatch = ['m-*']\nwindow = 5\n")
    rows = load(tmp_path, start="p").rows
    assert rows.provider("mine").base_url == "http://127.0.0.1:9/v1"
    assert not rows.provider("openai").quirks.images
    assert rows.facts("mine", "m-1").window == 5


# What is not understood.

WRONG = {
    "an unknown key": ("modell = 'x'", "'modell': there is no such setting. Known are"),
    "not TOML": ("model = ", "not TOML"),
    "not UTF-8": ("model = '\udcff'", "not UTF-8"),
    "an alias without a provider": ("[aliases]\na = 'x'", "aliases.a"),
    "an alias to nowhere": ("[aliases]\na = 'antropic:x'", "Did you mean anthropic:x"),
    "a loop of aliases": ("[aliases]\na = 'b'\nb = 'a'", "leads back to itself"),
    "an alias with a colon": ("[aliases]\n'a:b' = 'openai:x'", "the name is not usable"),
    "an alias of a number": ("[aliases]\na = 1", "field 'aliases.a': expected a table of texts"),
    "aliases as a text": ("aliases = 'x'", "expected a table"),
    "a model of a number": ("model = 1", "expected a text"),
    "a model without a provider": ("model = 'gpt-5.1'", "Write openai:gpt-5.1"),
    "a secret in a row": ("[providers.openai]\napi_key = 'sk-sentinel'", "a row never holds a secret"),
    "a harness of tables": ("[harness.reviewer]\nanything = [1, 2]", "expected a table of texts"),
    "trust in a text": ("trusted = '~/p'", "expected a list of texts"),
    "trust with a zero byte": ('trusted = ["a\\u0000b"]', "expected a list of texts"),
    "too much": ("#" * 2_000_000, "it has more than"),
    "too deep": ("x = " + "[" * 100_000, "config.toml"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_its_place(case: str, tmp_path: Path, write: Write) -> None:
    text, said = WRONG[case]
    path = write(".config/evener/config.toml", "")
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "sentinel" not in str(caught.value)


def test_a_section_that_nothing_reads_is_accepted(tmp_path: Path, write: Write) -> None:
    write("evener.toml", "[agents.reviewer]\nanything = [1, 2]\n")
    assert load(tmp_path).files


@pytest.mark.parametrize("section", TRUST)
def test_every_section_is_documented(section: str) -> None:
    assert f"`{section}`" in DOCS.read_text(encoding="utf-8")
