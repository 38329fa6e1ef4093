"""Secrets in command lines, told by their program: an option of it, or their place."""

from __future__ import annotations

from typing import NamedTuple

WORD = r"[^\s\"']"
_PAIR = rf" +({WORD}{{1,128}}) +({WORD}{{3,256}})"
_ADDRESS = r" +\S{1,64} +\S{1,200}"


class Rule(NamedTuple):
    """Word of the lower-case text, kinds of the groups, pattern for the lower-case text.

    A pattern that is `cased` is for the text as it is: -P is another option than -p.
    """

    word: str
    kinds: tuple[str, ...]
    pattern: str
    cased: bool = False


_ROWS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("login", ("user", "password"), rf"\blogin +({WORD}{{1,64}}) +password +({WORD}{{3,256}})"),
    ("login", ("user",), r"\blogin [^\n]{0,120}?(?<= )(?:-u|--username)[ =]([^\s\"']{1,64})"),
    ("login", ("password",), rf"\blogin [^\n]{{0,160}}?(?<= )-p[ =]?[\"']?({WORD}{{3,256}})"),
    ("wandb", ("wandb-key",), r"\bwandb(?:\.| +)login\b[^,;]{0,24}?\b([0-9a-f]{40})\b"),
    (
        "configure",
        ("key",),
        rf"\bconfigure +set +[\w.-]{{0,40}}(?:secret_access_key|session_token) +({WORD}{{16,}}+)",
    ),
    ("sshpass", ("password",), rf"\bsshpass +-p *[\"']?({WORD}{{3,256}})"),
    ("redis-cli", ("password",), rf"\bredis-cli [^\n]{{0,160}}?(?<= )-a +[\"']?({WORD}{{3,256}})"),
    (
        "mongo",
        ("password",),
        rf"\bmongo\w{{0,8}} [^\n]{{0,160}}?(?<= )-p +[\"']?({WORD}{{3,256}})",
    ),
    ("sqlcmd", ("password",), rf"\bsqlcmd [^\n]{{0,160}}?(?<= )-p +[\"']?({WORD}{{3,256}})"),
    (
        "ldap",
        ("password",),
        rf"\bldap[a-z]{{3,8}} [^\n]{{0,160}}?(?<= )-w +[\"']?({WORD}{{3,256}})",
    ),
    (
        "smbclient",
        ("user", "password"),
        rf"\bsmbclient [^\n]{{0,160}}?(?<= )-u ?([^\s%]{{1,64}})%({WORD}{{3,256}})",
    ),
    ("kubeadm", ("token",), r"--token[ =]([a-z0-9]{6}\.[a-z0-9]{16})\b"),
    ("pass:", ("password",), rf"-(?:pass|passin|passout|k) +[\"']?pass:({WORD}{{3,256}})"),
    ("mysql", ("password",), rf"\bmysql\w{{0,8}} [^\n]{{0,160}}?(?<= )-p({WORD}{{3,256}})"),
    (
        "curl",
        ("user", "password"),
        r"\bcurl [^\n]{0,200}?(?<= )(?:-u|--user)[ =]?[\"']?"
        rf"([^\s:\"'/]{{0,64}}):({WORD}{{3,256}})",
    ),
    (
        "echo",
        ("password",),
        r"\becho +(?:-n +)?[\"']?([^\s|\"'$]{6,256})[\"']? *\| *"
        r"(?:sudo|docker|podman|helm|nerdctl|oras|gh|huggingface-cli|hf|wandb|kinit|passwd) ",
    ),
    (
        "chpasswd",
        ("user", "password"),
        r"\becho +(?:-[en]+ +)?[\"']?([^\s|\"'$:]{1,64}):([^\s|\"'$]{3,256})[\"']? *\|"
        r" *(?:sudo +)?chpasswd",
    ),
    ("alias set", ("key-id", "secret"), rf"\bmc(?:li)? +alias +set{_ADDRESS}{_PAIR}"),
    ("host add", ("key-id", "secret"), rf"\bmc(?:li)? +config +host +add{_ADDRESS}{_PAIR}"),
    (
        "rabbitmqctl",
        ("user", "password"),
        r"\brabbitmqctl +(?:-\S+ +)?(?:add_user|change_password|authenticate_user)" + _PAIR,
    ),
    # with -n no file stands before the user
    (
        "htpasswd",
        ("user", "password"),
        r"\bhtpasswd +(?:-[a-z0-9]{1,8} +){0,4}-[a-z]{0,6}(?:bn|nb)[a-z]{0,6}" + _PAIR,
    ),
    (
        "htpasswd",
        ("user", "password"),
        r"\bhtpasswd +(?:-[a-z0-9]{1,8} +){0,4}-[a-mo-z]{0,6}b[a-mo-z]{0,6}"
        rf"(?: +-[a-z0-9]{{1,8}}){{0,4}} +{WORD}{{1,256}}{_PAIR}",
    ),
    ("obscure", ("password",), rf"\brclone +obscure +[\"']?({WORD}{{3,256}})"),
    (
        "lftp",
        ("user", "password"),
        rf"\blftp [^\n]{{0,160}}?(?<= )-u +([^\s,]{{1,64}}),({WORD}{{3,256}})",
    ),
    # a call in a program
    (
        "login(",
        ("key",),
        r"login\((?:[^\n)]{0,80}[\s,(])?(?:key|token)\s?=\s?[\"']([^\s\"']{8,256})[\"']",
    ),
)

# Programs and the options a password follows, as they are written.
_OPTIONS: tuple[tuple[str, str], ...] = (
    ("unzip", "-P +"),
    ("zip", "-P +"),
    ("7z", "-p"),
    ("unrar", "-p"),
    ("openssl", "-[kK] +"),
    ("ipmitool", "-P +"),
    ("mosquitto_", "-P +"),
    ("snmp", "-[cAX] +"),
    ("beeline", "-p +"),
    ("cqlsh", "-p +"),
    ("influx", "-password +"),
    ("ssh-keygen", "-[NP] +"),
    ("keytool", "-(?:store|key|src|dest)(?:store)?pass +"),
    ("useradd", "-p +"),
    ("usermod", "-p +"),
    ("xfreerdp", "/p:"),
    ("cmdkey", "/pass:"),
    ("etcdctl", "--user[ =][^\\s:]{1,64}:"),
)


def _option(program: str, option: str) -> Rule:
    pattern = rf"\b{program}\w{{0,8}} [^\n]{{0,160}}?(?<= ){option}[\"']?({WORD}{{3,256}})"
    return Rule(program, ("password",), pattern, cased=True)


COMMANDS = (*(Rule(*row) for row in _ROWS), *(_option(*row) for row in _OPTIONS))
