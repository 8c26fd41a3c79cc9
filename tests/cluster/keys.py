"""A throw-away certificate authority, certificates and kubeconfigs for one node."""

import datetime as dt
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.cluster.layout import API_IP, API_SERVICE_IP, NODE, NODE_IP

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
LIFETIME = dt.timedelta(days=3650)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Who a certificate is for: to Kubernetes a user, its group, and a server's names."""

    name: str
    group: str | None = None
    hosts: tuple[str, ...] = ()

    def x509(self) -> x509.Name:
        group = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, self.group)] if self.group else []
        return x509.Name([*group, x509.NameAttribute(NameOID.COMMON_NAME, self.name)])


class Authority:
    """Signs certificates and writes them as `<file>.crt` and `<file>.key`."""

    def __init__(self, folder: Path, name: str, now: dt.datetime) -> None:
        self.folder, self.now = folder, now
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = Subject(name=name).x509()
        authority = x509.BasicConstraints(ca=True, path_length=None)
        self._write(name, self.key, self._builder(self.subject, self.key).add_extension(authority, critical=True))

    @classmethod
    def new(cls, folder: Path, name: str) -> Self:
        return cls(folder, name, dt.datetime.now(dt.UTC))

    def issue(self, file: str, subject: Subject) -> None:
        """Write a certificate that serves as a client's and as a server's."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = self._builder(subject.x509(), key)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(usages, critical=False)
        if subject.hosts:
            names = x509.SubjectAlternativeName([general_name(host) for host in subject.hosts])
            builder = builder.add_extension(names, critical=False)
        self._write(file, key, builder)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - dt.timedelta(days=1))
            .not_valid_after(self.now + LIFETIME)
        )

    def _write(self, file: str, key: ec.EllipticCurvePrivateKey, builder: x509.CertificateBuilder) -> None:
        certificate = builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        (self.folder / f"{file}.crt").write_bytes(certificate)
        write_private(self.folder / f"{file}.key", pem(key))


def general_name(text: str) -> x509.GeneralName:
    """Return a host as an address or a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def pem(key: PrivateKey) -> bytes:
    """Return a private key as text."""
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def write_private(path: Path, content: bytes) -> None:
    """Write a file for root's eyes."""
    path.touch(mode=0o600)
    path.write_bytes(content)


CLIENTS = {
    "admin": Subject(name="kubernetes-admin", group="system:masters"),
    "kube-controller-manager": Subject(name="system:kube-controller-manager"),
    "kube-scheduler": Subject(name="system:kube-scheduler"),
    "kube-proxy": Subject(name="system:kube-proxy"),
    "kubelet": Subject(name=f"system:node:{NODE}", group="system:nodes"),
}


def make_keys(pki: Path) -> None:
    """Write everything that the components and their clients authenticate with."""
    pki.mkdir(parents=True, exist_ok=True)
    ca, front = Authority.new(pki, "ca"), Authority.new(pki, "front-proxy-ca")
    service = ["kubernetes", "default", "svc", "cluster", "local"]
    names = tuple(".".join(service[:length]) for length in (1, 2, 3, 5))
    hosts = (*names, "localhost", "127.0.0.1", API_SERVICE_IP, NODE_IP, API_IP)
    ca.issue("apiserver", Subject(name="kube-apiserver", hosts=hosts))
    ca.issue("apiserver-kubelet-client", Subject(name="apiserver-kubelet-client", group="system:masters"))
    front.issue("front-proxy-client", Subject(name="front-proxy-client"))
    ca.issue("kubelet-server", Subject(name=f"system:node:{NODE}", group="system:nodes", hosts=(NODE, NODE_IP)))
    for file, subject in CLIENTS.items():
        ca.issue(file, subject)
        (pki / f"{file}.kubeconfig").write_text(kubeconfig(pki, file, NODE_IP))
    (pki / "outside.kubeconfig").write_text(kubeconfig(pki, "admin", API_IP))
    signer = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    write_private(pki / "sa.key", pem(signer))
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    (pki / "sa.pub").write_bytes(signer.public_key().public_bytes(serialization.Encoding.PEM, public))


def kubeconfig(pki: Path, user: str, address: str) -> str:
    """Return the text of a kubeconfig for one of the clients."""
    cluster = {"server": f"https://{address}:6443", "certificate-authority": str(pki / "ca.crt")}
    identity = {"client-certificate": str(pki / f"{user}.crt"), "client-key": str(pki / f"{user}.key")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": "k", "context": {"cluster": "k", "user": user}}],
        "current-context": "k",
    }
    return json.dumps(config, indent=1)
