"""`serve --tls-cert --tls-key`: HTTPS, and what is refused."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import omnigraph as og
from omnigraph.errors import InvalidInput, Unavailable
from omnigraph.server.app import serve
from omnigraph.server.settings import GraphSettings, ServerSettings, read_settings
from tests.server.bed import ADD, ALL, Door


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


def test_a_client_that_believes_the_certificate(serving: Callable[..., Door], pair: tuple[Path, Path]) -> None:
    cert, key = pair
    door = serving("--tls-cert", cert, "--tls-key", key)
    assert door.url.startswith("https://")
    with og.connect(door.url, ca=cert) as g:
        g.mutate(ADD, {"n": "Ada"})
        assert [row["name"] for row in g.query(ALL).rows] == ["Ada"]
    with pytest.raises(Unavailable):
        og.connect(door.url)
    with pytest.raises(Unavailable):
        og.connect(door.url.replace("https", "http"))
    with pytest.raises(InvalidInput):
        og.connect(door.url, ca=key.parent / "nothing.pem")


def test_files_that_cannot_be_used(pair: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = pair
    (tmp_path / "empty.pem").write_text("")
    graphs = (GraphSettings("own", str(tmp_path)),)
    wrong: list[dict[str, Any]] = [
        {"tls_cert": tmp_path / "nothing.pem"},
        {"tls_cert": tmp_path / "empty.pem"},
        {"tls_cert": cert},
        {"tls_cert": cert, "tls_key": tmp_path / "empty.pem"},
        {"tls_key": key},
    ]
    for wrong_options in wrong:
        with pytest.raises(InvalidInput) as refused:
            serve(ServerSettings(graphs, port=0, **wrong_options), {})
        assert refused.value.code == "bad_tls"


def test_the_settings_file_names_them(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('[server]\ntls_cert = "cert.pem"\ntls_key = "keys/key.pem"\n')
    settings = read_settings(file)
    assert (settings.tls_cert, settings.tls_key) == (tmp_path / "cert.pem", tmp_path / "keys" / "key.pem")
