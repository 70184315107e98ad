"""Certificates for servers on loopback, made once by the `openssl` command."""

import shutil
import ssl
import subprocess
from pathlib import Path

import msgspec
import pytest


class Certificates(msgspec.Struct, frozen=True):
    """An authority, and a server's context with a certificate that it signed."""

    ca_file: str
    other_ca_file: str
    server: ssl.SSLContext
    elsewhere: ssl.SSLContext


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder, timeout=120)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Two authorities; the first has signed certificates for loopback, one of them of another name."""
    if shutil.which("openssl") is None:
        pytest.fail("These tests make certificates with the `openssl` command, which is not installed.")
    folder = tmp_path_factory.mktemp("certificates")
    request = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3")
    for name in ("authority", "stranger"):
        signs = ("-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign")
        openssl(folder, *request, "-keyout", f"{name}.key", "-out", f"{name}.pem", *signs)
    signed = ("-CA", "authority.pem", "-CAkey", "authority.key", "-addext", "basicConstraints=critical,CA:FALSE")
    for name, alternative in (("server", "DNS:localhost,IP:127.0.0.1"), ("elsewhere", "DNS:elsewhere.example")):
        names = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={alternative}")
        openssl(folder, *request, "-keyout", f"{name}.key", "-out", f"{name}.pem", *names, *signed)
    contexts = []
    for name in ("server", "elsewhere"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        contexts.append(context)
    return Certificates(str(folder / "authority.pem"), str(folder / "stranger.pem"), *contexts)
