"""Which requests are answered: not those that web pages of other sites send, nor those without key.

A page that a browser on this machine, or beside it, shows can send requests to a server that others
cannot reach. It may call the server by its address (then the browser names the page's site as
`Origin`), or by a public name of its own that leads to that address (then `Host` has that name).
"""

import secrets
from ipaddress import ip_address
from socket import gethostname
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sim.api.address import Address
from sim.api.replies import error
from sim.core.errors import shorten

# As with SGLang 0.5.23 (srt/utils/auth.py), what watches a server needs no key. vLLM 0.33.0 asks
# for one below /v1 only (entrypoints/openai/server_utils.py).
_NEED_NO_KEY = ("/health", "/health_generate", "/ping", "/metrics")
# Names that no public name server knows: RFC 6761, 6762 and 8375, ICANN's `internal`, and
# Kubernetes' `NAME.NAMESPACE.svc`.
_PRIVATE = (".localhost", ".local", ".test", ".home.arpa", ".internal", ".svc")
_ONLY_READS = ("GET", "HEAD", "OPTIONS")
# SGLang takes GET here as well as POST.
_CHANGED_BY_GET = "/flush_cache"


class Guard:
    """Refuses requests before an application sees them."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        self._app = app
        self._given = [name.lower() for name in address.allowed_host or ()]
        self._own = {address.host.lower(), gethostname().lower()}
        self._key = None if address.api_key is None else address.api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        # Browsers always name a host.
        host, origin = headers.get("host"), headers.get("origin")
        if host is not None and not self._is_allowed(name := _name(f"//{host}")):
            reason = f"the host {shorten(repr(name))} is not allowed: see --allowed-host"
            return JSONResponse(error(403, reason), 403)
        only_reads = scope["method"] in _ONLY_READS
        changes = not only_reads or scope["path"] == _CHANGED_BY_GET
        if changes and origin is not None:
            is_own = origin.partition("://")[2].lower() == (host or "").lower()
            if not is_own and not self._is_given(_name(origin)):
                reason = f"a page of {shorten(repr(origin))} may not send this: see --allowed-host"
                return JSONResponse(error(403, reason), 403)
        elif changes and only_reads and self._may_be_a_page(headers):
            reason = "a page of another site may not send this: send a POST, or see --allowed-host"
            return JSONResponse(error(403, reason), 403)
        if self._key is not None and scope["path"] not in _NEED_NO_KEY:
            scheme, _, sent = headers.get("authorization", "").partition(" ")
            is_right = secrets.compare_digest(sent.encode(), self._key)
            if scheme.lower() != "bearer" or not is_right:
                bearer = {"WWW-Authenticate": "Bearer"}
                return JSONResponse(error(401, "the API key is missing or wrong"), 401, bearer)
        return None

    def _may_be_a_page(self, headers: Headers) -> bool:
        """Whether a GET without `Origin`, as for a picture, may be that of another site's page.

        Browsers say so, but only to servers with TLS and to their own machine; to others, nothing
        but the browser's name tells.
        """
        is_browser = headers.get("user-agent", "").startswith("Mozilla/")
        site = headers.get("sec-fetch-site", "unknown" if is_browser else "none")
        return site not in ("none", "same-origin") and "*" not in self._given

    def _is_allowed(self, name: str) -> bool:
        if "." not in name or name.endswith(_PRIVATE) or name in self._own:
            return True
        return _is_ip(name) or self._is_given(name)

    def _is_given(self, name: str) -> bool:
        return any(
            given in ("*", name) or (given[0] == "*" and name.endswith(given[1:]))
            for given in self._given
        )


def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _name(url: str) -> str:
    """The host of an address in lower case; `.`, which is none, for what is no address."""
    try:
        return urlsplit(url).hostname or "."
    except ValueError:
        return "."
