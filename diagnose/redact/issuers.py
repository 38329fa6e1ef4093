"""What a token of each issuer begins with and is made of: a row each, with a sample in the tests.

A row is what such a token begins with (a literal, by which a text that holds none is told in no
time), its kind, and its parts: the whole beginning, the characters of the rest, how many there are
at least, and what must not follow. Forms of another build are whole patterns.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Shape(NamedTuple):
    """One form; `body` is a class of characters, or empty where `head` is the whole pattern."""

    start: str
    kind: str
    head: str
    body: str = ""
    least: int = 0
    after: str = ""


_W = "[A-Za-z0-9]"
_D = "[A-Za-z0-9_-]"  # base64url
_B = "[A-Za-z0-9+/=]"  # base64
_X = "[0-9a-f]"
_HEX = "[0-9a-fA-F]"
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_END = "(?![A-Za-z0-9])"
_NO_NAME = "(?!_)"  # hf_convert_checkpoint…


def _row(
    start: str, kind: str, body: str = "", least: int = 0, after: str = "", head: str = ""
) -> Shape:
    return Shape(start, kind, head or re.escape(start), body, least, after)


SHAPES: tuple[Shape, ...] = (
    # hubs of models and data, trackers of experiments
    _row("hf_", "hf-token", _W, 20, _NO_NAME),
    _row("api_org_", "hf-token", _W, 20),
    _row("hf_oauth_", "hf-token", "[A-Za-z0-9_.-]", 20),
    _row("hf_jwt_", "hf-token", "[A-Za-z0-9_.-]", 20),
    _row("wandb_v1_", "wandb-key", "[A-Za-z0-9_]", 40),
    _row("KGAT_", "token", _X, 32),
    _row("ms-", "token", head=rf"ms-{_UUID}{_END}"),  # ModelScope
    _row("r8_", "api-key", _W, 30),
    # Neptune's are a base64 JSON object that starts with {"api_address":
    _row("eyJhcGlfYWRkcmVzcy", "neptune-token", "[A-Za-z0-9+/=_-]", 20, r"(?!\.)"),
    # forges and their runners
    _row("gh", "github-token", _W, 20, head="gh[opsur]_"),
    _row("github_pat_", "github-token", "[A-Za-z0-9_]", 20),
    _row(
        "gl", "gitlab-token", "[A-Za-z0-9_.-]", 16,
        head="gl(?:pat|rt|rtr|dt|cbt|ptt|ft|imt|agent|oas|soat|ffct|wt)-",
    ),
    _row("GR1348941", "gitlab-token", _D, 20),
    _row("_gitlab_session=", "cookie", _X, 32),
    _row("ATBB", "token", _W, 28),
    _row("ATATT3", "token", "[A-Za-z0-9_=-]", 50),
    _row("ATCTT3", "token", "[A-Za-z0-9_=-]", 50),
    _row("CCIPAT_", "token", "[A-Za-z0-9_]", 20),
    _row("bkua_", "token", _X, 40),
    _row("sgp_", "token", "[0-9a-fA-F_]", 40),
    # clouds
    _row("AKIA", "aws-key-id", "[A-Z0-9]", 16, _END, head="AKIA"),
    _row("ASIA", "aws-key-id", "[A-Z0-9]", 16, _END, head="ASIA"),
    _row("ABIA", "aws-key-id", "[A-Z0-9]", 16, _END, head="ABIA"),
    _row("ACCA", "aws-key-id", "[A-Z0-9]", 16, _END, head="ACCA"),
    _row("FwoGZXIvYXdz", "aws-session-token", "[A-Za-z0-9/+=%]", 40),
    _row("FQoGZXIvYXdz", "aws-session-token", "[A-Za-z0-9/+=%]", 16),
    _row("FQoDYXdz", "aws-session-token", "[A-Za-z0-9/+=%]", 16),
    _row("AQoDYXdz", "aws-session-token", "[A-Za-z0-9/+=%]", 16),
    _row("IQoJb3JpZ2lu", "aws-session-token", "[A-Za-z0-9/+=%]", 40),
    _row("ABSK", "api-key", _B, 100),
    _row("bedrock-api-key-", "api-key", _B, 20),
    _row("LTAI", "key-id", head=r"LTAI[A-Za-z0-9]{12,26}(?![A-Za-z0-9_])"),
    _row("AKID", "key-id", head=rf"AKID[A-Za-z0-9]{{32}}{_END}"),
    _row("AKLT", "key-id", _W, 36),
    _row("bce-v3/", "api-key", head=r"bce-v3/ALTAK-[A-Za-z0-9]{8,40}/[0-9a-f]{32,}+"),
    _row("AIza", "google-key", _D, 30),
    _row("GOCSPX-", "google-key", _D, 20),
    _row("ya29.", "google-token", "[A-Za-z0-9_.-]", 20),
    _row("1//0", "google-token", _D, 40),
    _row("AQ.Ab", "google-key", _D, 30),
    _row(":APA91b", "google-token", head=r"[A-Za-z0-9_-]{8,30}:APA91b[A-Za-z0-9_-]{60,}+"),
    _row("Q~", "azure-secret", head=r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{28,40}"),
    _row("AZDO", "azure-token", head=rf"[A-Za-z0-9]{{76}}AZDO[A-Za-z0-9]{{4}}{_END}"),
    _row("JQQJ99", "azure-key", head=rf"[A-Za-z0-9]{{52}}JQQJ99[A-Za-z0-9]{{26}}{_END}"),
    _row("ACDb", "azure-key", head=r"[A-Za-z0-9+/]{76}ACDb[A-Za-z0-9+/]{5}[AQgw]=="),
    _row("+ASt", "azure-key", head=r"[A-Za-z0-9+/]{76}\+ASt[A-Za-z0-9+/]{5}[AQgw]=="),
    _row("+ACR", "azure-key", head=rf"[A-Za-z0-9+/]{{42}}\+ACR[A-D][A-Za-z0-9+/]{{5}}{_END}"),
    _row("AzFu", "azure-key", head=r"[A-Za-z0-9_-]{44}AzFu[A-Za-z0-9_-]{5}[AQgw]=="),
    _row("AQVN", "api-key", head=r"AQVN[A-Za-z0-9_-]{35,38}(?![A-Za-z0-9_-])"),
    _row("y0_", "token", "[A-Za-z0-9_-]", 40),
    _row("t1.", "token", head=r"t1\.[A-Za-z0-9_-]{20,}={0,2}\.[A-Za-z0-9_-]{60,}+={0,2}"),
    _row("do", "token", _X, 40, head="do[opr]_v1_"),
    _row("v1.0-", "api-key", head=r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}+"),
    _row("HRKU-", "api-key", _D, 30),
    _row("fo1_", "token", _D, 40),
    _row("fm", "token", "[A-Za-z0-9+/=]", 60, head="fm(?:1[ar]|2)_"),
    _row("nfp_", "token", _W, 32),
    _row("sbp_", "token", _W, 32, head="sbp_(?:oauth_|v0_)?"),
    _row("sb_secret_", "api-key", _D, 20),
    _row("napi_", "api-key", "[a-z0-9]", 40),
    _row("pscale_", "token", "[A-Za-z0-9_=.-]", 24, head="pscale_(?:pw|tkn|oauth)_"),
    _row("mdb_sa_sk_", "secret", _D, 20),
    _row("rnd_", "api-key", _W, 26),
    _row("tk-us-", "token", _D, 40),
    _row("4b1d", "secret", head=rf"4b1d(?=[A-Za-z0-9]{{0,38}}[g-zG-Z])[A-Za-z0-9]{{38}}{_END}"),
    _row("sha256~", "token", _D, 40),
    # model providers; looked behind here, so that task-4-… does not swallow a key after it
    _row("sk-", "api-key", head=r"sk-(?:(?<![A-Za-z0-9]sk-)|(?<=\\[nrt]sk-))[A-Za-z0-9_-]{20,}+"),
    _row("sk_", "api-key", _W, 10, head="[sr]k_(?:live|test|prod)_"),
    _row("rk_", "api-key", _W, 10, head="rk_(?:live|test|prod)_"),
    _row("sess-", "token", _W, 36),
    _row("gsk_", "api-key", _W, 40),
    _row("xai-", "api-key", _W, 40),
    _row("pplx-", "api-key", _W, 40),
    _row("nvapi-", "api-key", _D, 20),
    _row("csk-", "api-key", "[a-z0-9]", 40),
    _row("fw_", "api-key", head=r"fw_(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{20,}+(?!_)"),
    _row("tgp_v1_", "api-key", _D, 30),
    _row("pa-", "api-key", _D, 40),
    _row("jina_", "api-key", _D, 50),
    _row("llx-", "api-key", _W, 40),
    _row("tvly-", "api-key", _D, 28),
    _row("fc-", "api-key", head=rf"fc-[0-9a-f]{{32}}{_END}"),
    _row("e2b_", "api-key", _X, 40),
    _row("ak-", "key-id", head=rf"ak-(?=[a-zA-Z]*\d)[A-Za-z0-9]{{22}}{_END}"),
    _row("as-", "secret", head=rf"as-(?=[a-zA-Z]*\d)[A-Za-z0-9]{{22}}{_END}"),
    _row("rpa_", "api-key", head=r"rpa_(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{24,}+(?!_)"),
    _row("esecret_", "api-key", "[a-z0-9]", 24),
    _row("aph0_", "api-key", "[A-Za-z0-9_-]", 24),
    _row("pcsk_", "api-key", "[A-Za-z0-9_]", 40),
    _row("lsv2_", "api-key", "[0-9a-f_]", 32, head="lsv2_(?:pt|sk)_"),
    _row("ls__", "api-key", _X, 32),
    _row("secret_", "secret", head=rf"secret_[A-Za-z0-9]{{43}}{_END}"),
    # Lambda's, with the name that its owner gave it
    _row(
        "secret_", "secret",
        head=r"secret_[A-Za-z0-9-]{1,40}_[0-9a-z]{20,64}\.[A-Za-z0-9]{20,}+",
    ),
    _row("phx_", "api-key", _W, 32),
    _row("vck_", "api-key", _W, 40),
    _row("vcp_", "token", _W, 40),
    _row("sdk-", "api-key", head=rf"sdk-{_UUID}{_END}"),
    _row("waka_", "api-key", head=rf"waka_{_UUID}{_END}"),
    _row("tfp_", "token", _D, 40),
    _row("CFPAT-", "token", _D, 43),
    _row("rdme_", "api-key", "[a-z0-9]", 50),
    _row("shippo_", "api-key", _X, 40, head="shippo_(?:live|test)_"),
    _row("rzp_", "key-id", _W, 14, head="rzp_(?:live|test)_"),
    _row("cal_live_", "api-key", _X, 32),
    _row("n8n_api_", "api-key", _W, 40),
    _row("FLWSECK", "api-key", head=r"FLWSECK(?:_TEST)?-[0-9a-zA-Z]{12,40}-X"),
    _row("EZ", "api-key", head=rf"EZ[AT]K[A-Za-z0-9]{{54}}{_END}"),
    _row("EAA", "token", head=r"EAA[MC][A-Za-z0-9]{100,}+"),
    _row("glhf_", "api-key", _X, 32),
    _row("sk_", "api-key", _W, 40),  # after the forms whose beginning is longer
    _row("ntn_", "token", _W, 40),
    # data platforms and work flows
    _row("dapi", "api-key", head=rf"dapi[0-9a-f]{{32}}(?:-\d)?{_END}"),
    _row("dose", "secret", head=rf"dose[0-9a-f]{{32}}{_END}"),
    _row("dkea", "token", head=rf"dkea[0-9a-f]{{32}}{_END}"),
    _row("dbt", "token", "[A-Za-z0-9_=-]", 32, head="dbt[cu]_"),
    _row("pn", "token", _W, 32, head="pn[ub]_"),
    _row("pul-", "token", _X, 40),
    _row(".atlasv1.", "token", head=r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}+"),
    _row("ico-", "api-key", head=rf"ico-[A-Za-z0-9]{{32}}{_END}"),
    # secrets kept for others
    _row("hv", "token", _D, 24, head=r"hv[sbr]\."),
    _row("s.", "token", head=r"s\.(?=[A-Za-z]*\d)(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{24}(?![\w.])"),
    _row("dp.", "token", _W, 40, head=r"dp\.(?:pt|st|sa|ct|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?"),
    _row("ops_eyJ", "token", "[A-Za-z0-9+/=_-]", 40),
    _row(
        "A3-", "key",
        head=r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}",
    ),
    _row("AGE-SECRET-KEY-1", "private-key", "[A-Z0-9]", 40),
    # hashes of passwords, as crypt(3) writes them
    _row(
        "$", "password",
        head=r"\$(?:1|5|6|7|y|apr1|2[aby]|argon2id?)\$[./A-Za-z0-9=,$+-]{20,}+",
    ),
    # packages and images
    _row("npm_", "npm-token", _W, 36, _NO_NAME),
    _row("pypi-AgE", "pypi-token", _D, 40),
    _row("pypi-AgENdGVzdC5weXBpLm9yZ", "pypi-token", _D, 20),
    _row("rubygems_", "token", _X, 48),
    _row("cio", "token", head=rf"cio(?=[A-Za-z]*\d)(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{{32}}{_END}"),
    _row("oy2", "token", head=rf"oy2[a-z0-9]{{43}}{_END}"),
    _row("dckr_", "docker-token", _D, 20, head="dckr_(?:pat|oat)_"),
    _row("AKCp", "token", _W, 60),
    _row("cmVmd", "token", head=rf"cmVmd[A-Za-z0-9]{{59}}{_END}"),
    _row("CLOJARS_", "token", "[a-f0-9]", 60),
    _row("conda", "token", head=r"conda[a-z.]{0,40}/t/([A-Za-z0-9_-]{16,}+)"),
    # networks, monitors, chat
    _row("tskey-", "api-key", "[A-Za-z0-9-]", 16),
    _row("nbp_", "token", _W, 36),
    _row("SWMTKN-1-", "token", "[a-z0-9-]", 40),
    _row("::server:", "token", head=r"K10[0-9a-f]{20,}+::server:[0-9a-f]{16,}+"),
    _row("gl", "token", "[A-Za-z0-9+/=_]", 32, head="gl(?:c|sa)_"),
    _row("eyJrIjoi", "api-key", "[A-Za-z0-9+/=]", 40, r"(?!\.)"),
    _row("NRAK-", "api-key", "[A-Z0-9]", 27),
    _row("NRII-", "api-key", _D, 32),
    _row("sntry", "token", "[A-Za-z0-9+/=_-]", 40, head="sntry[su]_"),
    _row("hca", "api-key", "[a-z0-9]", 50, head="hca[il]k_"),
    _row("dt0", "token", head=r"dt0[a-z]\d\d\.[A-Z0-9]{16,24}\.[A-Z0-9]{60,}+"),
    _row("essu_", "api-key", _B, 30),
    _row("PMAK-", "api-key", "[a-f0-9-]", 50),
    _row("figd_", "token", _D, 36),
    _row("lin_", "api-key", _W, 32, head="lin_(?:api|oauth)_"),
    _row("pat", "token", head=rf"pat[A-Za-z0-9]{{14}}\.[0-9a-f]{{64}}{_END}"),
    _row("pat-", "token", head=rf"pat-(?:na|eu|ap)\d-{_UUID}"),
    _row("sl.", "token", head=r"sl\.(?:u\.)?[A-Za-z0-9_-]{100,}+"),
    _row("SG.", "api-key", head=r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{30,}+"),
    _row("key-", "api-key", head=rf"key-(?=[a-f]{{0,32}}\d)[0-9a-f]{{32}}{_END}"),
    _row("-us", "api-key", head=rf"[0-9a-f]{{32}}-us\d{{1,2}}{_END}"),
    _row("re_", "api-key", head=r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{22,}+"),
    _row("xkeysib-", "api-key", "[A-Za-z0-9-]", 60),
    _row("SK", "api-key", head=rf"SK[0-9a-f]{{32}}{_END}"),
    _row("sq0", "api-key", _D, 22, head="sq0(?:atp|csp)-"),
    _row("shp", "token", _HEX, 32, head="shp(?:at|ca|pa|ss)_"),
    _row("whsec_", "secret", "[A-Za-z0-9+/=]", 24),
    _row("xox", "slack-token", "[A-Za-z0-9-]", 10, head=r"(?:xoxe\.)?xox[abcdeoprs]-"),
    _row("xapp-", "slack-token", "[A-Za-z0-9-]", 20),
    _row(
        "hooks.slack.com/", "slack-token", "[A-Za-z0-9+/]", 20,
        head=r"hooks\.slack\.com/(?:services|workflows|triggers)/",
    ),
    _row(
        "/webhooks/", "token", _D, 40,
        head=r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{10,24}/",
    ),
    _row(
        "webhook.office.com/", "token", "[A-Za-z0-9@/_-]", 36,
        head=r"webhook\.office\.com/webhookb?2?/",
    ),
    _row("api.telegram.org/bot", "token", _D, 30, head=r"api\.telegram\.org/bot\d{6,12}:"),
    _row(":AA", "token", head=r"\d{8,10}:AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])"),
    _row("open-apis/bot/", "token", head=rf"open-apis/bot/(?:v2/)?hook/({_UUID})"),
    _row("hooks.zapier.com/", "token", "[A-Za-z0-9/]", 10, head=r"hooks\.zapier\.com/hooks/catch/"),
    _row("/with/key/", "token", head=r"ifttt\.com/[^\s\"']{0,80}/with/key/([A-Za-z0-9_-]{16,}+)"),
    _row("hc-ping.com/", "token", head=rf"hc-ping\.com/({_UUID})"),
    # a bot of Discord: the base64 of its number comes first
    *(
        _row(start, "discord-token", head=rf"{start}{_W}{{22,26}}\.{_D}{{6}}\.{_D}{{27,38}}")
        for start in ("MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT")
    ),
    _row("k.eyJ", "api-key", head=r"[sp]k\.eyJ[A-Za-z0-9_-]{30,}\.[A-Za-z0-9_-]{20,}+"),
    _row("eyJ", "jwt", head=r"eyJ[A-Za-z0-9_.-]{16,}+"),
    # how key files begin, where the lines around them are missing
    _row("b3BlbnNzaC1rZXktdjE", "private-key", r"[A-Za-z0-9+/=\\]", 0),
    _row("MII", "private-key", head=r"MII[A-Za-z0-9+/]{3}IBA(?:AK[BC]|DAN)[A-Za-z0-9+/=\\]*+"),
    _row("MII", "private-key", head=r"MII[A-Za-z0-9+/]{5}BgkqhkiG9w0BBQ[A-Za-z0-9+/=\\]*+"),
    _row("MHcCAQEE", "private-key", r"[A-Za-z0-9+/=\\]", 8),
    _row("MIGkAgEBBD", "private-key", r"[A-Za-z0-9+/=\\]", 8),
    _row("MIHcAgEBBE", "private-key", r"[A-Za-z0-9+/=\\]", 8),
    _row("AgEAM", "private-key", head=r"MI[GH][A-Za-z0-9+/]AgEAM[A-Za-z0-9+/=\\]{8,}+"),
    _row("MC4CAQAwBQYDK2Vw", "private-key", r"[A-Za-z0-9+/=\\]", 8),
)  # fmt: skip
