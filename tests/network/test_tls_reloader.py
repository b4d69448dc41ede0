"""Stores of one producer: loaded before connections, again when files have changed, and never half."""

import asyncio
import errno
import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from aioproducer._network import tls_reloader
from aioproducer._network.tls import TlsProtocol
from aioproducer._network.tls_reloader import Password, StoreOptions, TlsReloader, reveal
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.security import Secret
from aioproducer.security._tls_context import TlsRules
from aioproducer.testing.certificates import Certificate, CertificateAuthority
from tests.fakes.logs import EventList
from tests.fakes.tls_peer import Inner

OLD, NEW = CertificateAuthority("old"), CertificateAuthority("new")


class Files:
    """A trust store and a key store that tests replace, and a client that reads them."""

    def __init__(self, folder: Path, *, more: StoreOptions | None = None) -> None:
        self.trust, self.key = folder / "ca.pem", folder / "client.pem"
        self.trust.write_text(OLD.certificate, encoding="utf-8")
        self.key.write_text(OLD.issue("client").pem, encoding="utf-8")
        self.log = EventList()
        options = more or StoreOptions(truststore_location=str(self.trust), keystore_location=str(self.key))
        self.use(options)

    def use(self, options: StoreOptions) -> None:
        self.client = TlsReloader(TlsRules(), options, None, log=self.log)

    async def trusted(self) -> list[str]:
        """Return the CAs that the next connection trusts."""
        await self.client.prepare()
        made: TlsProtocol[Inner] = self.client.wrap(Inner, "broker")()
        found = made._context.get_ca_certs()  # noqa: SLF001  # what the connection will use
        return [str(dict(part[0] for part in each["subject"])["commonName"]) for each in found]  # type: ignore[misc]


def encrypted(certificate: Certificate, password: str) -> str:
    key = load_pem_private_key(certificate.key.encode(), None)
    hidden = forms.BestAvailableEncryption(password.encode())
    return key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, hidden).decode() + certificate.chain


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def test_changed_file_is_loaded_before_the_next_connection(files: Files) -> None:
    assert await files.trusted() == ["old"]
    files.trust.write_text(OLD.certificate + NEW.certificate, encoding="utf-8")
    assert sorted(await files.trusted()) == ["new", "old"]
    assert files.log.names().count("tls_files_reloaded") == 1
    assert sorted(await files.trusted()) == ["new", "old"]
    assert files.log.names().count("tls_files_reloaded") == 1, "unchanged files are not loaded"


async def test_swapped_symlink_is_a_changed_file(tmp_path: Path) -> None:
    """As Kubernetes replaces mounted secrets."""
    for name, authority in (("one", OLD), ("two", NEW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ca.pem").write_text(authority.certificate, encoding="utf-8")
    (tmp_path / "data").symlink_to(tmp_path / "one")
    files = Files(tmp_path, more=StoreOptions(truststore_location=str(tmp_path / "data" / "ca.pem")))
    assert await files.trusted() == ["old"]
    (tmp_path / "next").symlink_to(tmp_path / "two")
    os.replace(tmp_path / "next", tmp_path / "data")  # noqa: PTH105  # atomically
    assert await files.trusted() == ["new"]


@pytest.mark.parametrize("content", ["", "-----BEGIN CERTIFICATE-----\nMII", NEW.issue("x").key])
async def test_half_written_file_changes_nothing_and_warns_once(files: Files, content: str) -> None:
    await files.trusted()
    files.trust.write_text(content, encoding="utf-8")
    for _ in range(3):
        assert await files.trusted() == ["old"]
    assert files.log.names().count("tls_files_not_reloaded") == 1
    files.trust.write_text(NEW.certificate, encoding="utf-8")
    assert await files.trusted() == ["new"]


class Passwords:
    """A password in each form that is asked for at every load."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_sealed = False
        self._path, self._monkeypatch = folder / "password", monkeypatch
        self.forms: dict[str, Password] = {
            "function": self._ask,
            "file": Secret.from_file(self._path),
            "variable": Secret.from_env("KEY_PASSWORD"),
        }

    def change(self, password: str) -> None:
        self._path.write_text(password, encoding="utf-8")
        self._monkeypatch.setenv("KEY_PASSWORD", password)

    def _ask(self) -> str:
        if self.is_sealed:
            raise OSError("the vault is sealed")
        return self._path.read_text(encoding="utf-8")


@pytest.fixture
def passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Passwords:
    """Passwords that are asked for again before each connection, without a pause."""
    monkeypatch.setattr(tls_reloader, "RETRY_S", 0.0)
    return Passwords(tmp_path, monkeypatch)


async def reloads_when(files: Files, change: Callable[[], None]) -> bool:
    """Fail to load files three times, with one warning, then change what was wrong, and tell whether they are used."""
    before = files.client.context()
    for _ in range(3):
        await files.client.prepare()
    assert files.client.context() is before
    assert files.log.names().count("tls_files_not_reloaded") == 1
    change()
    await files.client.prepare()
    return files.client.context() is not before and files.log.names()[-1] == "tls_files_reloaded"


@pytest.mark.parametrize("form", ["function", "file", "variable"])
async def test_password_that_comes_after_its_file_is_used(files: Files, passwords: Passwords, form: str) -> None:
    passwords.change("old password")
    files.key.write_text(encrypted(OLD.issue("client"), "old password"), encoding="utf-8")
    files.use(StoreOptions(keystore_location=str(files.key), key_password=passwords.forms[form]))
    await files.client.prepare()
    files.key.write_text(encrypted(NEW.issue("client"), "new password"), encoding="utf-8")

    assert await reloads_when(files, lambda: passwords.change("new password"))


async def test_password_function_that_failed_once_is_asked_again(files: Files, passwords: Passwords) -> None:
    passwords.change("password")
    files.key.write_text(encrypted(OLD.issue("client"), "password"), encoding="utf-8")
    files.use(StoreOptions(keystore_location=str(files.key), key_password=passwords.forms["function"]))
    await files.client.prepare()
    passwords.is_sealed = True
    files.key.write_text(encrypted(NEW.issue("client"), "password"), encoding="utf-8")

    assert await reloads_when(files, lambda: setattr(passwords, "is_sealed", False))


async def test_missing_password_is_asked_for_after_a_pause(files: Files) -> None:
    """Not before each connection: a vault that hangs would hold all of them up."""
    asked: list[float] = []

    def ask() -> str:
        asked.append(asyncio.get_running_loop().time())
        return "wrong"

    files.use(StoreOptions(keystore_location=str(files.key), key_password=ask))
    await files.client.prepare()
    files.key.write_text(encrypted(NEW.issue("client"), "right"), encoding="utf-8")
    await asyncio.gather(*(files.client.prepare() for _ in range(100)))

    assert len(asked) == 2


async def test_changed_permissions_are_a_changed_file(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was copied as another user is given to this one later, which changes neither time nor size."""
    build = tls_reloader.build_context

    def unreadable(*_: object) -> NoReturn:
        raise ConfigurationError("no permission")

    await files.trusted()
    files.trust.write_text(NEW.certificate, encoding="utf-8")
    monkeypatch.setattr(tls_reloader, "build_context", unreadable)
    assert await files.trusted() == ["old"]
    monkeypatch.setattr(tls_reloader, "build_context", build)
    assert await files.trusted() == ["old"]
    files.trust.chmod(0o640)
    assert await files.trusted() == ["new"]


async def test_load_without_a_free_descriptor_leaves_the_old_files(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    await files.trusted()
    files.trust.write_text(NEW.certificate, encoding="utf-8")
    monkeypatch.setattr(tls_reloader, "build_context", exhausted)
    assert await files.trusted() == ["old"]
    assert "Too many open files" in str(files.log.events)


async def test_store_of_another_type_is_used_and_logged(files: Files) -> None:
    files.use(StoreOptions(keystore_location=str(files.key), keystore_type="JKS"))
    await files.client.prepare()

    found = {"option": "ssl_keystore_type", "configured": "JKS", "found": "PEM"}
    assert ("store_type_differs", found) in files.log.events


async def test_removed_file_changes_nothing(files: Files) -> None:
    await files.trusted()
    files.key.unlink()
    assert await files.trusted() == ["old"]
    assert "there is no such file" in str(files.log.events)


async def test_key_and_trust_are_loaded_as_a_whole(files: Files) -> None:
    """A new CA does not take effect while the key beside it cannot be used."""
    await files.trusted()
    files.trust.write_text(NEW.certificate, encoding="utf-8")
    files.key.write_text(NEW.issue("client").key, encoding="utf-8")
    assert await files.trusted() == ["old"]
    files.key.write_text(NEW.issue("client").pem, encoding="utf-8")
    assert await files.trusted() == ["new"]


async def test_first_load_that_fails_is_an_error(files: Files) -> None:
    files.trust.unlink()
    with pytest.raises(ConfigurationError, match="there is no such file"):
        await files.trusted()
    files.trust.write_text(NEW.certificate, encoding="utf-8")
    assert await files.trusted() == ["new"]


async def test_hundred_connections_load_once(files: Files) -> None:
    await files.trusted()
    files.trust.write_text(NEW.certificate, encoding="utf-8")
    assert await asyncio.gather(*(files.trusted() for _ in range(100))) == [["new"]] * 100
    assert files.log.names().count("tls_files_reloaded") == 1


async def test_load_that_is_cancelled_leaves_the_next_one_to_work(files: Files) -> None:
    loading = asyncio.ensure_future(files.trusted())
    await asyncio.sleep(0)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert await files.trusted() == ["old"]


async def test_context_function_is_called_for_each_connection() -> None:
    made: list[ssl.SSLContext] = []

    def make() -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        made.append(context)
        return context

    log = EventList()
    client = TlsReloader(TlsRules(), StoreOptions(), make, log=log)
    for _ in range(3):
        await client.prepare()
        client.wrap(Inner, "broker")
    assert len(made) == 3
    assert log.names() == ["tls_setting"]


@pytest.mark.parametrize("kind", ["text", "secret", "function", "async", "async secret", "none"])
async def test_password_is_asked_for_in_every_form(kind: str) -> None:
    async def ask() -> str:
        return "x"

    async def ask_secret() -> Secret:
        return Secret("x")

    forms: dict[str, Password] = {
        "text": Secret("x"),
        "secret": Secret("x"),
        "function": lambda: "x",
        "async": ask,
        "async secret": ask_secret,
        "none": None,
    }
    assert await reveal(forms[kind], "ssl_key_password") == (None if kind == "none" else "x")


async def test_password_function_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang() -> str:
        await asyncio.Event().wait()
        return "x"

    monkeypatch.setattr(tls_reloader, "ANSWER_S", 0.01)
    with pytest.raises(ConfigurationError, match="ssl_key_password: the function has not answered within"):
        await reveal(hang, "ssl_key_password")


async def test_failing_password_function_is_named_without_its_text() -> None:
    def fail() -> str:
        raise ValueError("canary")

    with pytest.raises(ConfigurationError, match="ssl_key_password: the function raised ValueError") as caught:
        await reveal(fail, "ssl_key_password")
    assert "canary" not in str(caught.value)
    with pytest.raises(ConfigurationTypeError, match="returned bytes, and must return text"):
        await reveal(lambda: b"canary", "ssl_key_password")  # type: ignore[arg-type, return-value]


class ThreeFiles(Files):
    """The files of a Kubernetes secret: ca.crt, tls.crt and tls.key, swapped together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = EventList()
        self.mount(OLD)
        names = {"truststore_location": "ca.crt", "keystore_location": "tls.crt", "key_location": "tls.key"}
        self.use(StoreOptions(**{option: str(folder / "data" / name) for option, name in names.items()}))

    def mount(self, authority: CertificateAuthority) -> None:
        revision = self._folder / str(len(list(self._folder.iterdir())))
        revision.mkdir()
        client = authority.issue("client")
        for name, text in (("ca.crt", authority.certificate), ("tls.crt", client.chain), ("tls.key", client.key)):
            (revision / name).write_text(text, encoding="utf-8")
        (self._folder / "next").symlink_to(revision)
        os.replace(self._folder / "next", self._folder / "data")  # noqa: PTH105  # atomically


async def test_three_files_of_a_secret_are_loaded_again_together(tmp_path: Path) -> None:
    files = ThreeFiles(tmp_path)
    assert await files.trusted() == ["old"]
    files.mount(NEW)
    assert await files.trusted() == ["new"]
    assert files.log.names() == ["tls_files_reloaded"]


async def test_new_key_file_alone_is_loaded_when_it_fits(tmp_path: Path) -> None:
    """A certificate that was replaced before its key is not used until both are there."""
    files = ThreeFiles(tmp_path)
    await files.trusted()
    renewed = OLD.issue("client")
    (tmp_path / "data" / "tls.crt").write_text(renewed.chain, encoding="utf-8")
    assert await files.trusted() == ["old"]
    assert files.log.names() == ["tls_files_not_reloaded"]
    (tmp_path / "data" / "tls.key").write_text(renewed.key, encoding="utf-8")
    assert await files.trusted() == ["old"]
    assert files.log.names() == ["tls_files_not_reloaded", "tls_files_reloaded"]


async def test_secret_swapped_during_the_first_load_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificate and key of two revisions do not fit."""
    files = ThreeFiles(tmp_path)
    build = tls_reloader.build_context
    swaps = [NEW]

    def build_after_swap(*arguments: Any) -> Any:
        if swaps:
            _, _, own = arguments
            chain = Path(own.location).read_text(encoding="utf-8")
            files.mount(swaps.pop())
            torn = tmp_path / "torn"
            torn.write_text(chain, encoding="utf-8")
            arguments = (*arguments[:2], replace(own, location=str(torn)))
        return build(*arguments)

    monkeypatch.setattr(tls_reloader, "build_context", build_after_swap)

    assert await files.trusted() == ["new"]
