"""Stores of every kind and state: what is read, and which text says what is wrong."""

import base64
import errno
import os
import ssl
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs7, pkcs12

from aioproducer.errors import ConfigurationError
from aioproducer.security._stores import KeyStore, TrustStore
from aioproducer.security._tls_context import TlsRules, build_context, openssl_name, types_that_differ
from aioproducer.testing.certificates import DAY, Certificate, CertificateAuthority

if not hasattr(pkcs12, "serialize_java_truststore"):
    pytest.skip("cryptography before 45 makes no trust stores as keytool does", allow_module_level=True)

GOLDEN = Path(__file__).parent / "golden"
ROOT = CertificateAuthority("root")
CLIENT = CertificateAuthority("intermediate", issuer=ROOT).issue("client", usage=("client",))
OTHER = ROOT.issue("other")
CANARY = "canary-77"


def encrypted(certificate: Certificate, password: str = CANARY, form: str = "PKCS8") -> str:
    key = load_pem_private_key(certificate.key.encode(), None)
    kind = forms.PrivateFormat.PKCS8 if form == "PKCS8" else forms.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(forms.Encoding.PEM, kind, forms.BestAvailableEncryption(password.encode())).decode()


def pkcs12_of(certificate: Certificate, password: str = CANARY) -> bytes:
    own, *others = x509.load_pem_x509_certificates(certificate.chain.encode())
    key = load_pem_private_key(certificate.key.encode(), None)
    hidden = forms.BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(b"client", key, own, others[::-1], hidden)  # type: ignore[arg-type]


def java_truststore(password: str = CANARY) -> bytes:
    authority = x509.load_pem_x509_certificate(ROOT.certificate.encode())
    return pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(authority, b"ca")], forms.BestAvailableEncryption(password.encode())
    )


def der(pem: str) -> bytes:
    """Return the first block of a PEM text."""
    return ssl.PEM_cert_to_DER_cert(
        "\n".join(["-----BEGIN CERTIFICATE-----", *pem.split("-----")[2].split(), "-----END CERTIFICATE-----"])
    )


def trust(content: bytes | str | None, tmp_path: Path, password: str | None = None) -> TrustStore:
    path = tmp_path / "trust"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return TrustStore(location=str(path), certificates=None, password=password)


def own(
    content: bytes | str, tmp_path: Path, password: str | None = None, *, key_password: str | None = None
) -> KeyStore:
    path = tmp_path / f"key{len(list(tmp_path.iterdir()))}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return KeyStore(location=str(path), key=None, certificate_chain=None, password=password, key_password=key_password)


def inline(key: str, chain: str | None, key_password: str | None = None) -> KeyStore:
    return KeyStore(location=None, key=key, certificate_chain=chain, password=None, key_password=key_password)


RULES = TlsRules()
NO_TRUST = TrustStore(location=None, certificates=None, password=None)
NO_KEY = KeyStore(location=None, key=None, certificate_chain=None, password=None, key_password=None)


def built(trusted: TrustStore = NO_TRUST, key: KeyStore = NO_KEY, rules: TlsRules = RULES) -> ssl.SSLContext:
    return build_context(rules, trusted, key).context


def refusal_of(trusted: TrustStore = NO_TRUST, key: KeyStore = NO_KEY, rules: TlsRules = RULES) -> tuple[str, str]:
    with pytest.raises(ConfigurationError) as caught:
        build_context(rules, trusted, key)
    shown = repr(caught.value) + repr(caught.value.__cause__)
    assert caught.value.__suppress_context__
    assert CANARY not in shown
    assert caught.value.option is not None
    return caught.value.option, str(caught.value)


# What is read


def test_pem_truststore_is_read_between_comments(tmp_path: Path) -> None:
    text = "# caf\xe9\n" + ROOT.certificate + "subject=x\n" + OTHER.chain.replace("\n", " ")
    assert len(trust(text.encode("latin-1"), tmp_path).read()) == 2


def test_truststore_of_java_is_read_in_each_format(tmp_path: Path) -> None:
    assert len(trust(java_truststore(), tmp_path, CANARY).read()) == 1
    jks = (GOLDEN / "trust.jks").read_bytes()
    assert len(trust(jks, tmp_path, "storepass").read()) == 1
    assert len(trust(jks, tmp_path).read()) == 1, "Java, too, reads one without its password"


def own_files(chain: bytes | str, key: bytes | str, tmp_path: Path, *, key_password: str | None = None) -> KeyStore:
    """Certificate and key in two files."""
    store = own(chain, tmp_path, key_password=key_password)
    return replace(store, key_location=own(key, tmp_path).location)


def test_key_is_read_from_a_file_of_its_own(tmp_path: Path) -> None:
    for key in (
        own_files(CLIENT.chain, CLIENT.key, tmp_path),
        own_files(CLIENT.chain, encrypted(CLIENT), tmp_path, key_password=CANARY),
        own_files(CLIENT.pem, CLIENT.pem, tmp_path),
        own_files(OTHER.key + CLIENT.chain, CLIENT.key, tmp_path),
    ):
        assert built(key=key) is not None


def test_key_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    missing = replace(own(CLIENT.chain, tmp_path), key_location="tls.key")
    for key, option, words in (
        (missing, "ssl_key_location", "ssl_key_location='tls.key': there is no such file"),
        (own_files(CLIENT.chain, CLIENT.chain, tmp_path), "ssl_key_location", "it has no private key: it holds 2 cert"),
        (own_files(CLIENT.chain, b"\x30\x82", tmp_path), "ssl_key_location", "it is not PEM, as a key"),
        (own_files(CLIENT.chain, encrypted(CLIENT), tmp_path), "ssl_key_password", "the private key is encrypted"),
        (own_files(CLIENT.chain, OTHER.key, tmp_path), "ssl_keystore_location", "belongs to another certificate"),
        (own_files(CLIENT.key, CLIENT.key, tmp_path), "ssl_keystore_location", "it has no certificate"),
        (own_files(pkcs12_of(CLIENT), CLIENT.key, tmp_path), "ssl_key_location", "leave out ssl_key_location"),
        (own(CLIENT.chain, tmp_path), "ssl_keystore_location", "give the key's file as ssl_key_location"),
    ):
        found = refusal_of(key=key)
        assert (found[0], words in found[1]) == (option, True), found


def test_keystore_is_read_in_each_format(tmp_path: Path) -> None:
    for key in (
        own(CLIENT.pem, tmp_path),
        own(CLIENT.chain + CLIENT.key, tmp_path),
        own(encrypted(CLIENT) + CLIENT.chain, tmp_path, key_password=CANARY),
        own(encrypted(CLIENT, form="OpenSSL") + CLIENT.chain, tmp_path, CANARY),
        inline(CLIENT.key, CLIENT.chain),
        inline(encrypted(CLIENT).replace("\n", " "), CLIENT.chain.replace("\n", " "), CANARY),
        own(pkcs12_of(CLIENT), tmp_path, CANARY),
        own((GOLDEN / "key.jks").read_bytes(), tmp_path, "storepass"),
        own((GOLDEN / "other_password.jks").read_bytes(), tmp_path, "storepass", key_password="pässword"),
    ):
        assert built(key=key).check_hostname
        assert CANARY not in repr(key) + repr(key.read())


def test_chain_of_pkcs12_is_put_in_order(tmp_path: Path) -> None:
    chain = own(pkcs12_of(CLIENT), tmp_path, CANARY).read().chain
    names = [x509.load_der_x509_certificate(each).subject.rfc4514_string() for each in chain]
    assert names == ["CN=client", "CN=intermediate", "CN=root"][: len(names)]
    assert len(names) >= 2


def test_context_has_the_settings_of_the_options() -> None:
    context = built()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_flags & ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    only = built(rules=TlsRules(protocol="TLSv1.2"))
    assert only.maximum_version is ssl.TLSVersion.TLSv1_2
    assert built(rules=TlsRules(enabled_protocols=("TLSv1.3",))).minimum_version is ssl.TLSVersion.TLSv1_3
    unnamed = build_context(TlsRules(checks_name=False), NO_TRUST, NO_KEY)
    assert unnamed.context.verify_mode is ssl.CERT_REQUIRED
    assert not unnamed.context.check_hostname
    assert [option for option, _ in unnamed.warnings] == ["ssl_endpoint_identification_algorithm"]


@pytest.mark.parametrize(
    "java, ours",
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("DHE-RSA-AES256-GCM-SHA384", "DHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_cipher_suites_are_taken_by_either_name(java: str, ours: str) -> None:
    assert openssl_name(java) == ours
    assert ours in {each["name"] for each in built(rules=TlsRules(cipher_suites=(java,))).get_ciphers()}


def test_suites_of_tls_1_3_alone_allow_nothing_older() -> None:
    rules = TlsRules(cipher_suites=("TLS_AES_256_GCM_SHA384",))
    made = build_context(rules, NO_TRUST, NO_KEY)
    assert made.context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert "the broker chooses" in made.warnings[0][1]


@pytest.mark.parametrize("content, found", [("PEM", "PEM"), ("PKCS12", "PKCS12"), ("JKS", "JKS")])
def test_type_that_differs_from_the_bytes_is_noted(tmp_path: Path, content: str, found: str) -> None:
    stores = {
        "PEM": ROOT.certificate.encode(),
        "PKCS12": java_truststore(),
        "JKS": (GOLDEN / "trust.jks").read_bytes(),
    }
    trusted = trust(stores[content], tmp_path)
    for configured in ("PEM", "PKCS12", "JKS", None):
        differing = list(types_that_differ(trusted, NO_KEY, trusted_type=configured, own_type=None))
        assert differing == ([] if configured in {found, None} else [("ssl_truststore_type", configured, found)])


def test_expired_certificate_is_warned_about_with_its_date(tmp_path: Path) -> None:
    for begins, ends, text in ((-2 * DAY, -DAY, "it has expired at 20"), (DAY, 2 * DAY, "it is not valid before 20")):
        issued = ROOT.issue("client", begins=begins, ends=ends)
        made = build_context(TlsRules(), NO_TRUST, own(issued.pem, tmp_path))
        assert [(option, text in reason) for option, reason in made.warnings] == [("ssl_keystore_location", True)]


# What is refused


def test_truststore_that_is_no_file_is_refused(tmp_path: Path) -> None:
    option, text = refusal_of(trust(None, tmp_path))
    assert (option, text.endswith("trust': there is no such file")) == ("ssl_truststore_location", True)
    folder = TrustStore(location=str(tmp_path), certificates=None, password=None)
    assert "it is a folder, not a file" in refusal_of(folder)[1]
    assert "cannot be read" in refusal_of(TrustStore(location="a\0b", certificates=None, password=None))[1]


@pytest.mark.parametrize(
    "content, text",
    [
        (CLIENT.key, "it has no certificate: it holds 1 private key"),
        ("-----BEGIN X-----\n-----END X-----", "it has no certificate: it holds X"),
        ("-----BEGIN CERTIFICATE-----", "no PEM at all"),
        ("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----", "a certificate in it is damaged"),
        ("-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----", "a certificate in it is damaged"),
        ("", "the file is empty"),
        ("bootstrap.servers", "it is neither PEM nor PKCS12 nor JKS: it begins with 62 6f 6f 74"),
        (b"\x30\x82garbage", "the PKCS12 store is damaged"),
        (b"\x30", "the PKCS12 store is damaged"),
        (
            der(CLIENT.chain),
            "it is a certificate in DER, and must be PEM or PKCS12: convert it with openssl x509",
        ),
        (
            der(CLIENT.key),
            "it is a private key in DER, and must be PEM or PKCS12: convert it with openssl pkey",
        ),
        (
            pkcs7.serialize_certificates(x509.load_pem_x509_certificates(CLIENT.chain.encode()), forms.Encoding.DER),
            "it is a list of certificates (PKCS7) in DER, and must be PEM or PKCS12: convert it with openssl pkcs7",
        ),
        (b"\xfe\xed\xfe\xed" + bytes(40), "the JKS store is damaged: version 0 is not known"),
        ((GOLDEN / "trust.jks").read_bytes()[:100], "the JKS store is damaged: it ends too early"),
        ((GOLDEN / "key.jks").read_bytes(), "it has no trusted certificate: it holds 1 private key"),
    ],
)
def test_truststore_without_certificates_says_what_it_holds(tmp_path: Path, content: str | bytes, text: str) -> None:
    option, message = refusal_of(trust(content, tmp_path))
    assert (option, text in message) == ("ssl_truststore_location", True), message


@pytest.mark.parametrize("content", [java_truststore(), (GOLDEN / "trust.jks").read_bytes()], ids=["pkcs12", "jks"])
def test_truststore_with_a_wrong_password_names_the_option(tmp_path: Path, content: bytes) -> None:
    option, text = refusal_of(trust(content, tmp_path, "wrong"))
    assert (option, "ssl_truststore_password is wrong" in text) == ("ssl_truststore_password", True)


@pytest.mark.parametrize(
    "content, text",
    [
        (CLIENT.chain, "it has no private key: it holds 2 certificates"),
        (CLIENT.key, "it has a private key and no certificate"),
        (CLIENT.pem + OTHER.key, "it has 2 private keys"),
        (CLIENT.key + OTHER.chain, "the private key belongs to another certificate"),
        ("-----BEGIN PRIVATE KEY-----\nMAAA\n-----END PRIVATE KEY-----\n" + CLIENT.chain, "is damaged"),
    ],
)
def test_keystore_that_lacks_something_says_what_it_holds(tmp_path: Path, content: str | bytes, text: str) -> None:
    option, message = refusal_of(key=own(content, tmp_path))
    assert (option, text in message) == ("ssl_keystore_location", True), message


def test_truststore_of_java_has_no_key(tmp_path: Path) -> None:
    assert "no private key: it holds 1 cert" in refusal_of(key=own(java_truststore(), tmp_path, CANARY))[1]
    jks = (GOLDEN / "trust.jks").read_bytes()
    assert "it has no private key, 1 certificate" in refusal_of(key=own(jks, tmp_path, "storepass"))[1]


def test_encrypted_key_without_its_password_asks_nobody(tmp_path: Path) -> None:
    for form in ("PKCS8", "OpenSSL"):
        option, text = refusal_of(key=own(encrypted(CLIENT, form=form) + CLIENT.chain, tmp_path))
        assert (option, "give its password as ssl_key_password" in text) == ("ssl_key_password", True)
        option, text = refusal_of(key=own(encrypted(CLIENT, form=form) + CLIENT.chain, tmp_path, key_password="no"))
        assert (option, "ssl_key_password is wrong" in text) == ("ssl_key_password", True)


@pytest.mark.parametrize(
    "content, password, key_password, option, text",
    [
        (pkcs12_of(CLIENT), "wrong", None, "ssl_keystore_password", "ssl_keystore_password is wrong"),
        (pkcs12_of(CLIENT), None, None, "ssl_keystore_password", "ssl_keystore_password is missing"),
        ((GOLDEN / "key.jks").read_bytes(), "wrong", None, "ssl_keystore_password", "is wrong, or the JKS store"),
        ((GOLDEN / "key.jks").read_bytes(), None, None, "ssl_keystore_password", "needs its password"),
        ((GOLDEN / "other_password.jks").read_bytes(), "storepass", None, "ssl_key_password", "another password"),
    ],
)
def test_keystore_with_a_wrong_password_names_the_option(  # noqa: PLR0917  # a row of the table
    tmp_path: Path, content: bytes, password: str | None, key_password: str | None, option: str, text: str
) -> None:
    found, message = refusal_of(key=own(content, tmp_path, password, key_password=key_password))
    assert (found, text in message) == (option, True), message


class LoadedFiles:
    """Notes the file that OpenSSL is given a key in, and what lies in the folder for temporary files meanwhile."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.modes, self._folder = "", list[int](), folder
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        load = ssl.SSLContext.load_cert_chain

        def noting(context: ssl.SSLContext, path: str, **options: object) -> None:
            assert "PRIVATE KEY" in Path(path).read_text("utf-8")
            self.path, self.modes = path, [each.stat().st_mode & 0o777 for each in folder.iterdir()]
            load(context, path, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noting)

    @property
    def left(self) -> list[Path]:
        return list(self._folder.iterdir())


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are Linux's")
def test_inline_key_touches_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = LoadedFiles(tmp_path, monkeypatch)
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208  # names
    built(key=inline(CLIENT.key, CLIENT.chain))

    assert loaded.path.startswith("/proc/self/fd/")
    assert loaded.modes == []
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  # as above


def test_inline_key_on_disk_is_private_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    loaded = LoadedFiles(tmp_path, monkeypatch)
    built(key=inline(CLIENT.key, CLIENT.chain))

    assert loaded.modes == [0o600]
    assert loaded.left == []


def test_store_that_this_user_may_not_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator, as whom tests may run, may read any file."""

    def refuse(_: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    store = trust(ROOT.certificate, tmp_path)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    option, text = refusal_of(store)

    assert option == "ssl_truststore_location"
    assert str(tmp_path) in text
    assert "this process may not read it" in text


def test_inline_key_and_chain_are_checked() -> None:
    assert refusal_of(key=inline(CLIENT.chain, CLIENT.chain))[0] == "ssl_keystore_key"
    assert refusal_of(key=inline(CLIENT.key, CLIENT.key))[0] == "ssl_keystore_certificate_chain"
    assert refusal_of(key=inline(encrypted(CLIENT), CLIENT.chain))[0] == "ssl_key_password"


@pytest.mark.parametrize("suite", ["TLS_NO_WITH_SUCH_SUITE", "such", "a\0b", "a\ud83d"])
def test_unknown_cipher_suite_is_refused(suite: str) -> None:
    option, text = refusal_of(rules=TlsRules(cipher_suites=("ECDHE-RSA-AES128-GCM-SHA256", suite)))
    assert (option, "is not a cipher suite that this OpenSSL" in text) == ("ssl_cipher_suites", True)


def test_pkcs12_without_cryptography_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    assert "pip install 'aioproducer[keystores]'" in refusal_of(trust(java_truststore(), tmp_path, CANARY))[1]


@pytest.mark.parametrize("name", ["trust.jks", "key.jks", "other_password.jks"])
def test_damaged_jks_is_refused_at_every_byte(tmp_path: Path, name: str) -> None:
    content = (GOLDEN / name).read_bytes()
    for at in range(4, len(content)):
        damaged = content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]
        with pytest.raises(ConfigurationError):
            own(damaged, tmp_path, "storepass", key_password="pässword" if "other" in name else None).read()


def with_uses(certificate: str) -> str:
    """A certificate as OpenSSL writes it with `-trustout`: behind it a list of uses, here an empty one."""
    content = base64.encodebytes(der(certificate) + b"\x30\x00").decode()
    return f"-----BEGIN TRUSTED CERTIFICATE-----\n{content}-----END TRUSTED CERTIFICATE-----\n"


def test_certificate_with_uses_of_openssl_is_refused(tmp_path: Path) -> None:
    """Its uses may say that it is not to be trusted."""
    option, text = refusal_of(trust(ROOT.certificate + with_uses(ROOT.certificate), tmp_path))
    assert option == "ssl_truststore_location"
    assert "it has a TRUSTED CERTIFICATE" in text
    assert "openssl x509 -in FILE -out FILE.pem" in text
    assert "TRUSTED CERTIFICATE" in refusal_of(key=own(CLIENT.key + with_uses(CLIENT.chain), tmp_path))[1]


@pytest.mark.parametrize("form", ["PKCS8", "OpenSSL"])
@pytest.mark.parametrize(
    "password, words",
    [("p" * 1025, "has 1025 bytes, and OpenSSL takes at most 1024"), ("p\udcff", "is not valid Unicode")],
)
def test_password_that_openssl_does_not_take_names_its_option(  # noqa: PLR0917  # a row of the table
    tmp_path: Path, form: str, password: str, words: str
) -> None:
    content = encrypted(CLIENT, form=form) + CLIENT.chain
    for name, key in (
        ("ssl_key_password", own(content, tmp_path, key_password=password)),
        ("ssl_keystore_password", own(content, tmp_path, password)),
    ):
        option, text = refusal_of(key=key)
        assert (option, f"{name} {words}" in text) == (name, True)


def test_password_of_pkcs12_that_is_not_unicode_names_its_option(tmp_path: Path) -> None:
    option, text = refusal_of(key=own(pkcs12_of(CLIENT), tmp_path, "p\udcff"))

    assert (option, "ssl_keystore_password is not valid Unicode" in text) == ("ssl_keystore_password", True)
