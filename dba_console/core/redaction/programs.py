"""Where programs take a secret on their command line. Read by `command_lines`."""

from __future__ import annotations

from typing import NamedTuple

_TABLE = """
curl wcurl: ~oHXdTAFecmrtwxyYzCDKPQ u: U: b E: user: proxy-user: cookie oauth2-bearer pass proxy-pass cert:
http https xh xhs: a: auth:
aria2c: rpc-secret
ab: A: P:
swaks: ap
sendemail: xp
sshpass: p
mysql mysqldump mysqladmin mysqlcheck mysqlimport mysqlshow mysqlsh mysqlslap mysqlbinlog mysqlpump: ~huPDSe p!
mariadb mariadb-dump mariadb-admin mariadb-check mariadb-import mariadb-backup xtrabackup mycli: ~huPDSe p!
mydumper myloader: ~huBo p
mongo mongosh mongodump mongorestore mongoexport mongoimport mongostat mongotop mongofiles: p
redis-cli keydb-cli valkey-cli redis-benchmark: ~hnu a pass =auth =AUTH =requirepass =masterauth
sqlcmd bcp osql isql tsql fisql: ~SUdQqi P
cqlsh sstableloader: p pw
influx influxd: ~* p t
cypher-shell: p
db2: =using
couchbase-cli cbbackup cbbackupmgr cbq: p
ora2pg: w
sqlplus sqlldr expdp impdp rman: /
pg_md5 pg_enc: #1
pcp_node_info pcp_attach_node pcp_detach_node pcp_promote_node: w
openssl: ~* k K pass passin passout hmac macopt psk srppass passwd=#-1
zip zipcloak unzip: ~dxb P
7z 7za 7zr 7zz: p!
rar unrar: p! hp!
keytool jarsigner: ~* storepass keypass new
gpg gpg2 gpgsm: passphrase
ssh-keygen: ~fCtbm N P
steghide: p
ldapsearch ldapmodify ldapadd ldapdelete ldapwhoami ldapcompare ldapmodrdn ldapexop: ~HDbhpsfYUe w
ldappasswd: ~HDbhpfYUe w s a
dsconf dsidm dsctl: ~D w
kadmin kadmin.local ktutil: ~prq w pw
smbclient rpcclient smbget smbcacls wmic winexe: ~WIp U% user%
net: U% use=#-1 user=#2
smbmap crackmapexec nxc netexec hydra evil-winrm: ~uH p
cmdkey: /pass:
plink pscp psftp putty: ~* pw
psexec paexec: p
schtasks: /rp
xfreerdp wlfreerdp rdesktop freerdp: /p: p
x11vnc vncviewer: passwd
lftp: ~ep u,
ncftp ncftpput ncftpget ncftpls: ~uP p
tnftp: u:
snmpget snmpwalk snmpset snmpgetnext snmpbulkwalk snmpbulkget snmptrap snmptable: ~vlua A X c
ipmitool: ~HUIL P
mosquitto_pub mosquitto_sub mosquitto_rr: ~htmupi P
rabbitmqadmin: ~HPuV p
rabbitmqctl: add_user=#2 change_password=#2 authenticate_user=#2
etcdctl: user:
htpasswd: #-1/b
mkpasswd: #1
usermod useradd: ~cdeGgkstu p
wpa_passphrase: #2
nmcli: =password =wifi-sec.psk
iwconfig: =key
pdftk: =user_pw =owner_pw =input_pw
twine jfrog: ~ur p
rclone: obscure=#1 =pass =password =secret_access_key
mc: alias=#-1 alias=#-2
aws: =aws_secret_access_key =aws_session_token put-parameter=value
az: login=p connection-string secret=value
docker podman nerdctl buildah skopeo crane oras regctl: ~u login=p creds: src-creds: dest-creds:
helm: ~u login=p
kubectl oc: from-literal==
vault bao: login=#1 unseal=#1
tailscale: authkey
wg: =preshared-key =private-key
"""
"""A row: programs, then where they take a secret.

`x`, `name`: the value of the option -x, -name or --name; `u:` after that sign in the value; `p!` only in the same word;
`=word` the next word; `#1` the operand, `#-1` the last, `#-1/b` only with the option -b; `/` after that sign in an
operand; `sub=p` only after the word sub; `/p:` an option that begins with a slash; `~abc` letters of options that take
another value, `~*` options are words, also after one hyphen."""


class Place(NamedTuple):
    """One place of a secret."""

    option: str = ""
    """Letter or name; empty: an operand."""
    sign: str = ""
    """The secret is after this sign in the word."""
    attached: bool = False
    keyword: bool = False
    operand: int = 0
    """Position, from 1, or from the end."""
    after: str = ""
    """Only after this word, or (`-b`) with this option."""


class Program(NamedTuple):
    """The places of one program."""

    places: tuple[Place, ...]
    with_value: str = ""
    words: bool = False


def _place(text: str) -> Place:
    after = ""
    if "=" in text[1:] and text[0] != "=":
        after, text = text.split("=", 1)
        if not text:
            return Place(option=after, sign="=")
        if text == "=":
            return Place(option=after, sign="=")
    if text[0] == "=":
        return Place(option=text[1:], keyword=True)
    if text[0] == "#":
        number, _, option = text[1:].partition("/")
        return Place(operand=int(number), after=f"-{option}" if option else after)
    if text == "/":
        return Place(sign="/")
    if text[0] == "/":
        return Place(option=text, attached=text[-1] == ":", after=after)
    if text[-1] == "!":
        return Place(option=text[:-1], attached=True, after=after)
    sign = text[-1] if text[-1] in ":%," else ""
    return Place(option=text.removesuffix(sign) if sign else text, sign=sign, after=after)


def _read_table() -> dict[str, Program]:
    found = {}
    for line in _TABLE.strip().splitlines():
        names, _, places = line.partition(":")
        words = places.split()
        with_value = "".join(word[1:] for word in words if word[0] == "~")
        parsed = tuple(_place(word) for word in words if word[0] != "~")
        for name in names.split():
            found[name] = Program(parsed, with_value, with_value == "*")
    return found


PROGRAMS = _read_table()
