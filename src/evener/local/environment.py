"""The environment of a child process: the variables it needs, and none of the user's keys. Pure: the environment is given."""

import re
from collections.abc import Mapping

from evener.transport.secrets import known_net

NEEDED = re.compile(
    r"(?:PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|WINDIR|COMSPEC|PATHEXT|USERPROFILE|LOCALAPPDATA|APPDATA"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|DYLD_\w+|VIRTUAL_ENV|PYTHON\w+|OMP_\w+|KMP_\w+|OPENBLAS_\w+|MKL_\w+|GGML_\w+|LLAMA_\w+|CUDA_\w+"
    r"|NVIDIA_\w+|HIP_\w+|HSA_\w+|ROCR?_\w+|ROCM_\w+|VK_\w+|XDG_CACHE_HOME|XDG_DATA_HOME)",
    re.IGNORECASE,
)
FETCHING = re.compile(
    r"(?:PIP_\w+|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NETRC|XDG_CONFIG_\w+)",
    re.IGNORECASE,
)
"""What pip needs, too: its index, and proxies to it. A login may be part of that, and is for that index alone."""
SECRET = re.compile(r"(?:.*_)?(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_.*)?", re.IGNORECASE)


def child_environment(environ: Mapping[str, str], *, fetching: bool = False) -> dict[str, str]:
    """Return the allowed variables for a child process, without any that may hold a secret."""
    net = known_net()
    found: dict[str, str] = {}
    for name, value in environ.items():
        is_needed = NEEDED.fullmatch(name) or (fetching and FETCHING.fullmatch(name))
        if is_needed and not SECRET.fullmatch(name) and not net.found_in(value):
            found[name] = value
    return found
