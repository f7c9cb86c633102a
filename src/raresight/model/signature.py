"""Signatures of model folders, for teams that move models over places which they do not trust.

`signature.json` holds an HMAC-SHA256, by a key that the team keeps, of

    the digest of `model.json`, which stands for the whole fitted part, and the digest of `policies.json`.

Who has the key can sign: a signature says that someone with the key has signed, not who.
"""

from __future__ import annotations

import hmac
import os
from pathlib import Path

from ..common.atomic_files import regular_file
from .folder import (
    SIGNATURE_FILE,
    Described,
    find_model,
    read_description,
    read_folder,
    write_description,
)

__all__ = ["KEY_VARIABLE", "Key", "check_signature", "read_key", "sign_model"]

Key = bytes | str | Path

KEY_VARIABLE = "RARESIGHT_KEY"
# A shorter one can be found by trying: a signature tells whether a guess is right.
_LEAST_BYTES = 16
_MOST_BYTES = 1 << 16


def sign_model(folder: str | Path, key: Key | None = None) -> Path:
    """Check a saved model and sign it; returns the file of the signature.

    Args:
        folder: Folder of a model, or of the run that made it.
        key: The key itself, or the path of its file. Default: the environment variable `RARESIGHT_KEY`.
    """
    secret = read_key(key)
    fit, policies = read_folder(folder)
    path = find_model(folder) / SIGNATURE_FILE
    write_description(path, {"key_id": _key_id(secret), "hmac_sha256": _signature(secret, fit, policies)})
    return path


def check_signature(folder: Path, fit: Described, policies: Described, key: Key | None) -> None:
    """Refuse a model without a valid signature.

    Args:
        folder: The folder of the model itself.
        fit, policies: What `read_folder` gave.
        key: As for `sign_model`.

    Raises:
        ValueError: There is no signature, it is by another key, or the model was changed since.
    """
    secret = read_key(key)
    path = folder / SIGNATURE_FILE
    if not os.path.lexists(path):
        raise ValueError(f"{folder} is not signed: it has no {SIGNATURE_FILE}. Sign it with `raresight sign`")
    signed = read_description(path)
    if not _equal(signed.get("key_id"), _key_id(secret)):
        raise ValueError(f"{folder} was signed with another key than the one given")
    if not _equal(signed.get("hmac_sha256"), _signature(secret, fit, policies)):
        raise ValueError(f"{folder} is not what was signed: the model or its policies were changed since")


def read_key(key: Key | None = None) -> bytes:
    """Return a key: itself, or read from a file or from the environment variable `RARESIGHT_KEY`.

    White space around it does not count, such as the end of a line.
    """
    if key is None or key == "":
        where = f"the environment variable {KEY_VARIABLE}"
        # An empty name of a file asks for a key, so it does not stand for the environment's.
        content = b"" if key == "" else os.environ.get(KEY_VARIABLE, "").encode()
        if not content.strip():
            raise ValueError(f"there is no key: give the file that holds it, or set {where}")
    elif isinstance(key, bytes):
        where, content = "the key", key
    else:
        where = str(key)
        with regular_file(Path(key)).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    secret = content.strip()
    if not _LEAST_BYTES <= len(secret) <= _MOST_BYTES:
        raise ValueError(
            f"{where} must hold {_LEAST_BYTES} to {_MOST_BYTES:,} bytes as a key; make one with "
            "`openssl rand -hex 32`"
        )
    return secret


def _signature(secret: bytes, fit: Described, policies: Described) -> str:
    return _hmac(secret, f"model {fit['description_sha256']} policies {policies['description_sha256']}")


def _key_id(secret: bytes) -> str:
    """Return what tells keys apart without telling the key."""
    return _hmac(secret, "key")[:16]


def _hmac(secret: bytes, text: str) -> str:
    return hmac.new(secret, f"raresight signature 1: {text}".encode(), "sha256").hexdigest()


def _equal(found: object, wanted: str) -> bool:
    # In constant time: the first wrong letter must not show in how long it takes.
    return hmac.compare_digest(str(found).encode(), wanted.encode())
