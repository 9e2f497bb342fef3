"""Decides by its name whether something is a secret: `PGPASSWORD`, `smtp_pass`, `secretAccessKey`, `app.api_key`."""

from __future__ import annotations

import re
from functools import lru_cache

_INSIDE = re.compile(
    r"passw|passphrase|passcode|passcmd|passcommand|pwd|secret(?!ar)|credential|bindpw|apikey|accesskey|privatekey|"
    r"accountkey|presharedkey|sharedaccess|storepass|keypass|authtoken"
)
"""Names of secrets that also stand within a longer word, as in `sslpassword`, `rootpwd`, `radiussecrets`."""
_PARTS = frozenset(
    ("pass", "pw", "psw", "pswd", "psk", "token", "tokens", "creds", "pin", "otp", "totp", "cookie", "sig")
)
"""Names of secrets that are a whole part of a name, as in `DB_PASS` or `github-token`."""
_PART_ENDS = re.compile(r"(?<!by)(?<!com)(?<!sur)(?<!tres)(?<!over)(?<!under)(?<!encom)pass\d*$|tokens?\d*$|pw\d*$")
_OF_KEYS_WORDS = """
    access account aes api app application auth aws azure backup cipher client consumer crypt dec decrypt
    decryption deploy des enc encrypt encryption functions gcs gpg hmac host jwt kms libsodium licence license
    master node pgp preshared priv private recovery root rsa s3 scram seal secret server service session shared
    sign signing sodium ssh storage subscription tls unseal vault webhook wrap wrapping
"""
_OF_KEYS = frozenset(_OF_KEYS_WORDS.split())
"""A `key` next to one of these parts is a secret; another may be that of a table or of a cache."""
_HARMLESS_KEYS_WORDS = """
    cache column distribution duplicate foreign group hash index lock map object order partition pri primary pub
    public redis route routing row shard sort ssl unique
"""
_HARMLESS_KEYS = frozenset(_HARMLESS_KEYS_WORDS.split())
"""In an environment, every other `…_KEY` is a secret."""
_ENDS_WORDS = """
    age algorithm at attempts changed check checking checks count days dir directory encryption expire expired expires
    expiry fd file filename files interval length lifetime limit max method min minutes mode name names path
    paths policy prompt reset retries seconds stdin timeout ttl type valid validity
"""
_ENDS = frozenset(_ENDS_WORDS.split())
"""Last parts of names that are about a secret, and hold none: `password_encryption`, `--password-file`."""
_STARTS_WORDS = """
    count max min n no num number show total with without
"""
_STARTS = frozenset(_STARTS_WORDS.split())
_SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORKING_DIRECTORY = ("PWD", "OLDPWD")


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Whether the value under this name is a secret; by the parts of the name.

    >>> [is_secret_name(name) for name in ("PASSWORD_REPL", "DB_PASS", "secretKeyBase", "repo1-s3-key", "app.api_key")]
    [True, True, True, True, True]
    >>> [is_secret_name(name) for name in ("password_encryption", "passfile", "ssl_key_file", "primary_key", "bypass")]
    [False, False, False, False, False]
    """
    if name in _WORKING_DIRECTORY:
        return False
    parts = [part for part in _SPLIT.split(name) if part]
    lowered = [part.lower() for part in parts]
    if not lowered or lowered[-1] in _ENDS or lowered[0] in _STARTS:
        return False
    if _INSIDE.search("".join(lowered)) or not _PARTS.isdisjoint(lowered):
        return True
    if any(_PART_ENDS.search(part) for part in lowered):
        return True
    return _is_secret_key(name, lowered)


def _is_secret_key(name: str, parts: list[str]) -> bool:
    if "key" not in parts and "keys" not in parts:
        return False
    if not _OF_KEYS.isdisjoint(parts) and "ssl" not in parts and "public" not in parts:
        return True
    return len(parts) > 1 and name.isupper() and _HARMLESS_KEYS.isdisjoint(parts)


_SECRET_KEY = re.compile(r"(?i)(?:^|[._-])key$")


def names_secret(parameter: str) -> bool:
    """Whether a configuration parameter holds a secret by its name: `my.token`, `ssl_passphrase_command`.

    >>> [names_secret(name) for name in ("my.token", "app.key", "password_encryption", "ssl_key_file")]
    [True, True, False, False]
    """
    return is_secret_name(parameter) or _SECRET_KEY.search(parameter) is not None
