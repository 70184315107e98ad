"""Every gate of the loader, fed with a violation: the error names file, row and field, and says what to do."""

from pathlib import Path

import pytest

from evener.errors import BadRow, UsageError
from evener.providers import load_rows

ROW = '[providers.own]\nwire = "openai_responses"\nbase_url = "http://localhost:9"\nkey_env = ["OWN_KEY"]\n'
MODEL = '[[models]]\nmatch = ["own-*"]\n'
SECRET = "sk-not-to-be-repeated"


def file(folder: Path, text: str) -> Path:
    path = folder / "own.toml"
    path.write_text(text, encoding="utf-8")
    return path


PROVIDER_CASES = {
    "unknown key": ("baseurl = 1", "'baseurl'", "Did you mean 'base_url'"),
    "unknown key that is like nothing": ("zzzz = 1", "'zzzz'", "Known are wire"),
    "wire of another type": ("wire = 4", "'wire'", "a text in quotes"),
    "unknown wire": ('wire = "smoke_signals"', "'wire'", "Known are 'anthropic_messages'"),
    "address without scheme": ('base_url = "localhost"', "'base_url'", "closing slash"),
    "address with closing slash": ('base_url = "https://a.example/"', "'base_url'", "closing slash"),
    "address with a user": (f'base_url = "https://me:{SECRET}@a.example"', "'base_url'", "without user"),
    "address with a query": (f'base_url = "https://a.example?key={SECRET}"', "'base_url'", "query"),
    "address with an unknown part": ('base_url = "https://{x}.example"', "'base_url'", "url_env.x"),
    "variables as one text": ('key_env = "OWN_KEY"', "'key_env'", "a list of texts"),
    "a key instead of its variable": (f'key_env = ["{SECRET}"]', "'key_env'", "Name the variable"),
    "a key that looks like a name": ('key_env = ["abcdef0123456789"]', "'key_env'", "in capitals"),
    "no key at all": ("key_env = []", "'key_env'", "keyless = true"),
    "switch as text": ('keyless = "yes"', "'keyless'", "true or false"),
    "header with a space": ('auth_header = "x api key"', "'auth_header'", "lower case"),
    "a key in the prefix": (f'auth_prefix = "Bearer {SECRET}"', "'auth_prefix'", "one word and a space"),
    "a key in url_env": (f'url_env.region = ["{SECRET}"]', "'url_env.region'", "Name the variable"),
    "no variable in url_env": ("url_env.region = []", "'url_env.region'", "at least one variable"),
    "header_env with a bad header": ('header_env."A B" = ["X"]', "'header_env.A B'", "lower case"),
    "like nobody": ('like = "nobody"', "'like'", "a row of this file or of an earlier one"),
    "like itself": ('like = "own"', "'like'", "leads back to itself"),
    "quirks of another type": ("quirks = 1", "'quirks'", "a table"),
    "unknown quirk": ("quirks.stricct = true", "'quirks.stricct'", "Did you mean 'strict'"),
    "quirk of another type": ('quirks.strict = "no"', "'quirks.strict'", "true or false"),
    "number that is a switch": ("quirks.max_output = true", "'quirks.max_output'", "whole number"),
    "number that is negative": ("quirks.max_output = -1", "'quirks.max_output'", "whole number"),
    "choice that does not exist": ('quirks.sampling = "some"', "'quirks.sampling'", "one of 'all', 'none'"),
    "unknown effort": ('quirks.efforts = ["none"]', "'quirks.efforts'", "'off', 'minimal'"),
    "unknown default effort": ('quirks.default_effort = "on"', "'quirks.default_effort'", "'off', 'minimal'"),
    "unknown thinking mode": ('quirks.thinking_modes = ["deep"]', "'quirks.thinking_modes'", "'adaptive'"),
    "unknown lifetime": ('quirks.cache_ttls = ["1d"]', "'quirks.cache_ttls'", "'5m'"),
    "path with an unknown part": ('quirks.path = "/{project}/x"', "'quirks.path'", "{model}"),
    "path without slash": ('quirks.path = "x"', "'quirks.path'", "slash"),
    "odd version": ('quirks.api_version = "1 2"', "'quirks.api_version'", "version"),
    "vendor with capitals": ('vendor = "Own"', "'vendor'", "lower case"),
}
SECRET_KEYS = [
    "api_key",
    "apikey",
    "key",
    "token",
    "auth_token",
    "secret",
    "password",
    "authorization",
    "openai_api_key",
    "x-api-key",
]
MODEL_CASES = {
    "unknown key": ("windows = 1", "'windows'", "Did you mean 'window'"),
    "window as text": ('window = "big"', "'window'", "whole number"),
    "negative window": ("window = -1", "'window'", "whole number"),
    "fresh as text": ('fresh = "yes"', "'fresh'", "true or false"),
    "unknown provider": ('providers = ["nobody"]', "'providers'", "Name rows that exist"),
    "unknown wire": ('wires = ["smoke_signals"]', "'wires'", "Known are 'anthropic_messages'"),
    "unknown quirk": ("quirks.thinkin_modes = []", "'quirks.thinkin_modes'", "Did you mean 'thinking_modes'"),
}
PATTERN_CASES = ["[]", '[""]', '["[4"]', '["4]"]', '["[]"]', '["Name"]', '["a b"]', '"name"']
FILE_CASES = {
    "no TOML": ("[providers", "it is not TOML"),
    "a provider twice": (ROW + ROW, "it is not TOML"),
    "another table": ("[prices]\n", "there is no such table"),
    "providers as a list": ("[[providers]]\n", "[providers.NAME]"),
    "models as a table": ("[models]\n", "[[models]]"),
    "a row that is no table": ("providers.own = 1\n", "expected a table, found a number"),
    "a model that is no table": ("models = [1]\n", "expected a table, found a number"),
    "a name with capitals": ("[providers.Own]\n", "the name is not usable"),
    "a row without wire": ('[providers.own]\nbase_url = "http://a"\nkeyless = true\n', "field 'wire': it is missing"),
    "a row without address": ('[providers.own]\nlike = "openai"\nkeyless = true\n', "field 'base_url': it is missing"),
    "a model row without match": ("[[models]]\nwindow = 1\n", "field 'match': it is missing"),
    "a circle": ('[providers.a]\nlike = "b"\n[providers.b]\nlike = "a"\n', "it leads back to itself"),
    "a deep nest": ("providers = " + "[" * 100_000, "nested too deeply"),
}


def overlaid(line: str) -> str:
    """The good row with this line instead of the one for the same field."""
    field = line.split(" = ")[0]
    return "".join(f"{kept}\n" for kept in ROW.splitlines() if not kept.startswith(f"{field} = ")) + line + "\n"


def test_the_row_that_the_cases_spoil_is_good(tmp_path: Path) -> None:
    rows = load_rows(file(tmp_path, ROW + MODEL))
    assert rows.provider("own").key_env == ("OWN_KEY",)


@pytest.mark.parametrize(("line", "field", "advice"), PROVIDER_CASES.values(), ids=PROVIDER_CASES)
def test_a_bad_provider_field_is_named_with_advice(line: str, field: str, advice: str, tmp_path: Path) -> None:
    path = file(tmp_path, overlaid(line))
    with pytest.raises(BadRow) as caught:
        load_rows(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, provider 'own', field {field}: ")
    assert advice in message
    assert SECRET not in message


@pytest.mark.parametrize("key", SECRET_KEYS)
@pytest.mark.parametrize("table", ["[providers.own]", "[providers.own.quirks]", "[[models]]"])
def test_a_secret_is_refused_and_not_repeated(key: str, table: str, tmp_path: Path) -> None:
    with pytest.raises(BadRow, match=r'never holds a secret.*key_env = \["NAME"\]') as caught:
        load_rows(file(tmp_path, f'{table}\n{key} = "{SECRET}"\n'))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(("line", "field", "advice"), MODEL_CASES.values(), ids=MODEL_CASES)
def test_a_bad_model_field_is_named_with_advice(line: str, field: str, advice: str, tmp_path: Path) -> None:
    path = file(tmp_path, MODEL + MODEL + line + "\n")
    with pytest.raises(BadRow) as caught:
        load_rows(path)
    assert str(caught.value).startswith(f"{path}, model row 2, field {field}: ")
    assert advice in str(caught.value)


@pytest.mark.parametrize("pattern", PATTERN_CASES)
def test_a_bad_pattern_is_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(BadRow, match="model row 1, field 'match': "):
        load_rows(file(tmp_path, f"[[models]]\nmatch = {pattern}\n"))


@pytest.mark.parametrize(("text", "said"), FILE_CASES.values(), ids=FILE_CASES)
def test_a_bad_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = file(tmp_path, text)
    with pytest.raises(BadRow) as caught:
        load_rows(path)
    assert str(caught.value).startswith(f"{path}")
    assert said in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRow, match="it cannot be read: No such file"):
        load_rows(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadRow, match="it is not UTF-8"):
        load_rows(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("name", "said"),
    [("antropic", "Did you mean anthropic"), ("opnai", "Did you mean openai"), ("qqqqqqqq", "Known are anthropic, ")],
)
def test_an_unknown_provider_is_told_the_near_names(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_rows().provider(name)
