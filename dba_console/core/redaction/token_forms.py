"""Tokens of well-known services, found by their form wherever they stand. A new form is one entry here."""

from __future__ import annotations

import re
from typing import NamedTuple


class TokenForm(NamedTuple):
    """One form. The pattern takes linear time: repetitions are possessive or bounded."""

    hints: tuple[str, ...]
    """Parts of the token in lower case: a text without any of them is not searched."""
    pattern: str


def _start(pattern: str, *hints: str) -> TokenForm:
    """Tokens that begin like this; at least 16 signs follow, with a digit among the first 40."""
    return TokenForm(hints or (pattern.lower(),), rf"(?<![A-Za-z0-9])(?:{pattern})(?=[\w.-]{{0,40}}\d)[\w.-]{{16,}}")


TOKEN_FORMS = (
    _start("gh[opsur]_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_"),  # GitHub
    _start("github_pat_|dckr_pat_", "_pat_"),  # GitHub, Docker
    _start("glpat-"), _start("glptt-"),  # GitLab
    _start(r"sk-(?=[\w-]{0,40}[A-Za-z0-9]{16})", "sk-"),  # OpenAI
    _start("[sr]k_live_", "k_live_"), _start("whsec_"),  # Stripe
    _start("xox[a-z]-", "xox"), _start("xapp-"),  # Slack
    _start("npm_(?=[A-Za-z0-9]{30})", "npm_"),
    _start(r"hvs\.", "hvs."),  # Vault
    _start("AIza"),  # Google
    _start(r"SG\.", "sg."),  # SendGrid
    _start("AGE-SECRET-KEY-1"),
    _start("pypi-"),
    _start("hf_(?=[A-Za-z0-9]{30})", "hf_"),  # Hugging Face
    _start("PMAK-"),  # Postman
    _start("tskey-"),  # Tailscale
    TokenForm(("akia", "asia"), r"(?<![A-Za-z0-9])A[KS]IA[A-Z0-9]{16}\b"),  # AWS
    TokenForm(("eyj",), r"(?<![\w.-])eyJ[\w-]{8,}+(?:\.[\w-]*+){1,4}"),  # JSON Web Token (RFC 7519)
)  # fmt: skip
TOKEN_HINTS = tuple(hint for form in TOKEN_FORMS for hint in form.hints)
TOKEN = re.compile("|".join(form.pattern for form in TOKEN_FORMS))
