"""The security checklist of the facts, each point a test: Host, Origin, login, and what Gradio leaves open when it is mounted."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from backend.errors import EnvironmentFault, InvalidInput
from backend.services.api import Api
from backend.services.views import Views
from tests.job_folders import add_job, open_api
from ui.assets import asset_url
from ui.server import Page, claim_address, create_app
from ui.sessions import COOKIE, MAX_FAILURES, hash_password

BASE = "http://127.0.0.1:7860"
HTML = {"Accept": "text/html,application/xhtml+xml"}
EVIL = {"Origin": "http://evil.example"}


def build_page(label: str) -> Page:
    """A page with what ours must not have, so that its dangers can be tried: a file input and a server function."""
    import gradio as gr

    def size_of(path: str | None) -> str:
        return "nothing" if path is None else Path(path).read_text()[:40]

    with gr.Blocks(title=label) as blocks:
        gr.Markdown(f"# {label}")
        given, shown, wanted, file = gr.File(label="in"), gr.Textbox(), gr.Textbox(), gr.File(label="out")
        given.change(size_of, given, shown, api_name="size_of")
        wanted.submit(lambda path: path, wanted, file, api_name="fetch")
        gr.HTML(html_template="<b></b>", js_on_load="", server_functions=[echo], elem_id="server")
    with blocks.route("Run", "/run"):
        gr.Markdown(f"run of {label}")
    return Page(blocks=blocks)


def echo(text: str) -> str:
    CALLS.append(text)
    return text


CALLS: list[str] = []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Api]]:
    """With both languages mounted. Gradio takes seconds to import: one for the module."""
    api = open_api(tmp_path_factory.mktemp("data"))
    add_job(api)
    app = create_app(api, Views(api), {"/": build_page("English"), "/zh": build_page("中文")}, api.settings)
    with TestClient(app, base_url=BASE, follow_redirects=False, raise_server_exceptions=False) as client:
        yield client, api


@pytest.fixture
def client(world: tuple[TestClient, Api]) -> TestClient:
    world[0].cookies.clear()
    return world[0]


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return open_api(tmp_path)


@pytest.fixture
def guarded(api: Api, tmp_path: Path) -> Iterator[TestClient]:
    """With a login, without pages."""
    users = tmp_path / "users.json"
    users.write_text(json.dumps({"ann": hash_password("correct horse"), "bob": hash_password("battery staple")}))
    app = create_app(api, Views(api), {}, replace(api.settings, auth_file=users))
    with TestClient(app, base_url=BASE, follow_redirects=False) as client:
        yield client


# -- pages ------------------------------------------------------------------------------------------------------------


def test_both_languages_are_served_with_our_root(client: TestClient) -> None:
    for path, label in (("/", "English"), ("/zh/", "中文"), ("/run", "English"), ("/zh/run", "中文")):
        page = client.get(path, headers=HTML)
        assert page.status_code == 200, path
        assert '<head><script>window.tunedeck={"root": ""};</script>' in page.text
        assert f'lang="{"zh-CN" if "/zh" in path else "en"}"' in page.text[:200]
        assert json.dumps(label)[1:-1] in page.text or label in page.text
    config = client.get("/zh/config").json()
    assert config["root"] == f"{BASE}/zh"
    assert client.get("/config").json()["root"] == BASE


def test_fonts_and_scripts_of_gradio_come_through(client: TestClient) -> None:
    page = client.get("/", headers=HTML).text
    assets = [part.split('"')[0] for part in page.split('src="')[1:] if part.startswith("./assets")]
    assert assets and all(client.get(asset.removeprefix(".")).status_code == 200 for asset in assets)
    assert client.get("/theme.css").status_code == 200


def test_gradio_api_answers_our_own_page(client: TestClient) -> None:
    answer = client.post("/gradio_api/run/size_of", json={"data": [None]}, headers={"Origin": BASE})
    assert answer.status_code == 200 and answer.json()["data"] == ["nothing"]


def test_no_history_footer_monitoring_or_open_documentation(client: TestClient) -> None:
    config = client.get("/config").json()
    assert config["footer_links"] == [] and not config.get("run_history") and config["show_error"] is False
    for path in ("/docs", "/redoc", "/openapi.json", "/gradio_api/openapi.json", "/monitoring", "/monitoring/summary"):
        assert client.get(path).status_code in (403, 404), path
        assert client.get(f"/zh{path}").status_code in (403, 404), path


def test_gradio_was_imported_without_analytics() -> None:
    import os

    import gradio as gr

    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert gr.analytics.analytics_enabled() is False


# -- Host and Origin --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/config", "/api/state", "/zh/config", "/gradio_api/info"])
def test_unknown_host_is_refused(client: TestClient, path: str) -> None:
    for headers in ({"Host": "evil.example"}, {"Host": "10.0.0.5:7860"}, {"X-Forwarded-Host": "evil.example"}):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 400 and "evil" not in json.dumps(answer.headers.multi_items())


MUTATING = [
    "/api/runs", "/api/runs/job-1/stop", "/api/runs/job-1/delete", "/gradio_api/run/size_of", "/gradio_api/queue/join",
    "/gradio_api/upload", "/gradio_api/component_server", "/zh/gradio_api/component_server", "/zh/gradio_api/run/size_of",
]  # fmt: skip


@pytest.mark.parametrize("path", MUTATING)
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:7860"])
def test_change_from_another_site_is_refused(client: TestClient, path: str, origin: str) -> None:
    for content, kind in (
        (b'{"data": [null]}', "application/json"),
        (b"{}", "text/plain"),
        (b"", "multipart/form-data; boundary=x"),
    ):
        answer = client.post(path, content=content, headers={"Origin": origin, "Content-Type": kind})
        assert answer.status_code == 403 and answer.json()["error"]["code"] == "cross_site"
    assert client.post(path, content=b"{}", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_component_server_function_cannot_be_called_by_another_site(client: TestClient) -> None:
    component = next(
        part for part in client.get("/config").json()["components"] if part["props"].get("elem_id") == "server"
    )
    body = json.dumps({"data": "pwned", "component_id": component["id"], "fn_name": "echo", "session_hash": "x"})
    CALLS.clear()
    client.post("/gradio_api/component_server", content=body, headers={**EVIL, "Content-Type": "text/plain"})
    assert CALLS == []
    own = client.post(
        "/gradio_api/component_server", content=body, headers={"Origin": BASE, "Content-Type": "application/json"}
    )
    assert own.status_code == 200 and CALLS == ["pwned"]


@pytest.mark.parametrize("path", ["/config", "/api/state", "/", "/gradio_api/queue/status"])
def test_no_answer_may_be_read_by_another_site(client: TestClient, path: str) -> None:
    for headers in (EVIL, {"Origin": "null"}, {"Origin": BASE}):
        answer = client.get(path, headers=headers)
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
        assert answer.status_code == (200 if headers["Origin"] == BASE else 403)
    preflight = client.options(path, headers={**EVIL, "Access-Control-Request-Method": "POST"})
    assert preflight.status_code == 403 and "access-control-allow-origin" not in preflight.headers


def test_every_answer_has_safe_headers(client: TestClient) -> None:
    for path in ("/", "/api/state", "/api/nothing", "/config", "/gradio_api/file=/etc/passwd"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "same-origin"
        assert "server" not in headers


# -- files through Gradio ---------------------------------------------------------------------------------------------


def forged(path: str) -> dict[str, object]:
    return {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "x", "size": 1, "mime_type": "text/plain"}


@pytest.mark.parametrize("prefix", ["", "/zh"])
@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ"])
def test_forged_upload_reads_no_file(client: TestClient, prefix: str, path: str) -> None:
    answer = client.post(f"{prefix}/gradio_api/run/size_of", json={"data": [forged(path)]}, headers={"Origin": BASE})
    assert answer.status_code != 200 and "root:" not in answer.text


def test_forged_upload_reads_nothing_of_the_data_folder(world: tuple[TestClient, Api]) -> None:
    client, api = world
    spec = api.paths.job("job-1").spec
    answer = client.post("/gradio_api/run/size_of", json={"data": [forged(str(spec))]}, headers={"Origin": BASE})
    assert answer.status_code != 200 and "stage" not in answer.text


@pytest.mark.parametrize("path", ["/etc/passwd", str(Path(__file__).resolve())])
def test_function_that_returns_a_path_sends_no_file(client: TestClient, path: str) -> None:
    answer = client.post("/gradio_api/run/fetch", json={"data": [path]}, headers={"Origin": BASE})
    served = answer.json().get("data") if answer.status_code == 200 else None
    assert not served or client.get(f"/gradio_api/file={served[0]['path']}").status_code == 403


@pytest.mark.parametrize("path", [
    "/gradio_api/file=/etc/passwd", "/gradio_api/file/etc/passwd", "/file=/etc/passwd", "/zh/gradio_api/file=/etc/passwd",
    "/gradio_api/file%3D/etc/passwd", "/gradio_api/proxy=http://169.254.169.254/", "/gradio_api/file=http://127.0.0.1/",
])  # fmt: skip
def test_file_addresses_of_gradio_are_closed_and_echo_nothing(client: TestClient, path: str) -> None:
    answer = client.get(path, headers={"Range": "bytes=0-3", "Cookie": "secret=1", "X-Mine": "echo"})
    assert answer.status_code == 403
    assert "secret" not in str(answer.headers) and "x-mine" not in answer.headers and "root:" not in answer.text


def test_upload_goes_to_the_data_folder_and_is_bounded(world: tuple[TestClient, Api]) -> None:
    client, api = world
    answer = client.post("/gradio_api/upload", files={"files": ("../../evil.sh", b"x")}, headers={"Origin": BASE})
    stored = Path(answer.json()[0])
    assert stored.is_relative_to(api.paths.uploads) and stored.name == "evil.sh"


# -- languages --------------------------------------------------------------------------------------------------------


def test_language_of_the_cookie_wins_over_the_browser(client: TestClient) -> None:
    chinese = {**HTML, "Accept-Language": "zh-CN,zh;q=0.9"}
    assert client.get("/run?id=a%20b&x=1", headers=chinese).headers["location"] == "/zh/run?id=a%20b&x=1"
    assert client.get("/run?id=1", headers={**HTML, "Accept-Language": "en-US,zh"}).status_code == 200
    assert client.get("/", headers={**chinese, "Cookie": "lang=en"}).status_code == 200
    assert client.get("/", headers={**HTML, "Cookie": "lang=zh"}).headers["location"] == "/zh/"
    for path in ("/config", "/theme.css", "/api/state", "/zh/"):
        assert client.get(path, headers={**HTML, "Cookie": "lang=zh"}).status_code == 200, path


@pytest.mark.parametrize(("address", "target"), [
    ("/lang/zh?next=/run%3Fid=1", "/zh/run?id=1"), ("/lang/en?next=/zh/run%3Fid=1", "/run?id=1"), ("/lang/zh", "/zh/"),
    ("/lang/en?next=/zh", "/"), ("/lang/zh?next=/zh/runs", "/zh/runs"), ("/lang/xx?next=/runs", "/runs"),
    ("/lang/zh?next=//evil.example", "/zh/"), ("/lang/en?next=https://evil.example", "/"),
    ("/lang/en?next=/%5Cevil.example", "/"),
    ("/lang/en?next=/zh//evil.example", "/"), ("/lang/en?next=/a%0D%0ASet-Cookie:x=1", "/"), ("/lang/en?next=/zhang", "/zhang"),
])  # fmt: skip
def test_language_switch_stays_on_this_server(client: TestClient, address: str, target: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 303 and answer.headers["location"] == target
    assert f"lang={'zh' if address.startswith('/lang/zh') else 'en'};" in answer.headers["set-cookie"]


# -- login ------------------------------------------------------------------------------------------------------------


def sign_in(client: TestClient, user: str = "ann", password: str = "correct horse", **fields: str) -> Any:
    return client.post("/login", data={"username": user, "password": password, **fields}, headers={"Origin": BASE})


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5"])
def test_other_address_without_users_does_not_start(api: Api, host: str) -> None:
    with pytest.raises(InvalidInput, match="without a login"):
        create_app(api, Views(api), {}, replace(api.settings, host=host))


def test_nothing_but_login_and_health_without_a_session(guarded: TestClient) -> None:
    for path in (
        "/",
        "/config",
        "/api/state",
        "/api/runs",
        "/api/runs/x/log.txt",
        "/gradio_api/info",
        "/theme.css",
        "/zh/",
        "/st/x/y",
    ):
        assert guarded.get(path).status_code in (401, 403), path
    assert guarded.post("/api/runs/x/stop", json={"mode": "kill"}).status_code == 401
    assert guarded.get("/api/health").status_code == 200 and guarded.get("/login").status_code == 200


def test_metrics_token_opens_metrics_and_nothing_else(api: Api, tmp_path: Path) -> None:
    users, token = tmp_path / "users.json", tmp_path / "token"
    users.write_text(json.dumps({"ann": hash_password("correct horse")}))
    token.write_text("s3cret-of-the-scraper\n")
    settings = replace(api.settings, auth_file=users, metrics_token_file=token)
    with TestClient(create_app(api, Views(api), {}, settings), base_url=BASE) as client:
        right = {"Authorization": "Bearer s3cret-of-the-scraper"}
        assert client.get("/metrics", headers=right).status_code == 200
        for wrong in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Basic s3cret-of-the-scraper"}):
            assert client.get("/metrics", headers=wrong).status_code == 401
        assert client.get("/api/state", headers=right).status_code == 401
        assert client.post("/api/runs/x/stop", headers=right, json={"mode": "kill"}).status_code == 401


def test_metrics_token_that_can_be_guessed_does_not_start(api: Api, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("short")
    with pytest.raises(InvalidInput, match="TUNEDECK_METRICS_TOKEN_FILE"):
        create_app(api, Views(api), {}, replace(api.settings, metrics_token_file=token))


def test_page_without_a_session_leads_to_the_login_and_back(guarded: TestClient) -> None:
    answer = guarded.get("/run?id=1", headers=HTML)
    assert answer.status_code == 303 and answer.headers["location"] == "/login?next=%2Frun%3Fid%3D1"
    form = guarded.get(answer.headers["location"])
    assert 'value="/run?id=1"' in form.text
    done = sign_in(guarded, next="/run?id=1")
    assert done.status_code == 303 and done.headers["location"] == "/run?id=1"
    cookie = done.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Secure" not in cookie
    assert guarded.get("/api/state").status_code == 200
    assert guarded.get("/login").status_code == 303


def test_sign_out_ends_the_session_on_the_server(guarded: TestClient) -> None:
    sign_in(guarded)
    value = guarded.cookies[COOKIE]
    assert guarded.post("/logout", headers={"Origin": BASE}).status_code == 303
    guarded.cookies.clear()
    assert guarded.get("/api/state", headers={"Cookie": f"{COOKIE}={value}"}).status_code == 401


def test_wrong_password_is_limited(guarded: TestClient) -> None:
    for _ in range(MAX_FAILURES):
        assert sign_in(guarded, password="wrong").status_code == 401
    late = sign_in(guarded)
    assert late.status_code == 429 and int(late.headers["retry-after"]) > 0
    assert COOKIE not in guarded.cookies


def test_login_of_another_site_is_refused(guarded: TestClient) -> None:
    answer = guarded.post("/login", data={"username": "ann", "password": "correct horse"}, headers=EVIL)
    assert answer.status_code == 403 and "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", '"><script>']
)
def test_login_leads_nowhere_else_and_shows_no_markup(guarded: TestClient, target: str) -> None:
    assert sign_in(guarded, next=target).headers["location"] == "/"
    guarded.cookies.clear()
    assert "<script>" not in guarded.get("/login", params={"next": target}).text


def test_login_speaks_chinese(guarded: TestClient) -> None:
    assert "密码" in guarded.get("/login", headers={"Accept-Language": "zh-CN"}).text
    assert "Password" in guarded.get("/login", headers={"Accept-Language": "de"}).text


def test_cookie_behind_https_and_a_prefix_is_secure_and_stays_below_it(api: Api, tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    users.write_text(json.dumps({"ann": hash_password("correct horse")}))
    settings = replace(api.settings, auth_file=users, public_url="https://deck.example/tune")
    host = {"Host": "deck.example"}
    with TestClient(
        create_app(api, Views(api), {}, settings), base_url=BASE, headers=host, follow_redirects=False
    ) as client:
        answer = client.post(
            "/login", data={"username": "ann", "password": "correct horse"}, headers={"Origin": "https://deck.example"}
        )
        assert answer.headers["location"] == "/tune/"
        assert "Path=/tune" in answer.headers["set-cookie"] and "Secure" in answer.headers["set-cookie"]
        assert client.get("/", headers=HTML).headers["location"] == "/tune/login?next=%2F"


def test_port_in_use_is_told_before_anything_starts(api: Api) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(EnvironmentFault, match=r"Cannot listen on 127\.0\.0\.1.*--port"):
            claim_address(replace(api.settings, port=other.getsockname()[1]))


def test_small_answers_are_sent_at_once(api: Api) -> None:
    """Without TCP_NODELAY every request of a connection that is kept open waits 40 ms for the other side's receipt."""

    async def no_delay() -> int:
        told: asyncio.Queue[int] = asyncio.Queue()

        async def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            told.put_nowait(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with claim_address(api.settings) as listener:
            async with await asyncio.start_server(look, sock=listener):
                _, writer = await asyncio.open_connection(*listener.getsockname())
                writer.close()
                return await told.get()

    assert asyncio.run(no_delay()) == 1


@pytest.mark.parametrize("kept", ["", "/tune"], ids=["proxy takes the path off", "proxy leaves it on"])
def test_pages_behind_a_prefix_know_their_public_address(api: Api, kept: str) -> None:
    import gradio as gr

    with gr.Blocks() as english:
        gr.Markdown("x")
    with gr.Blocks() as chinese:
        gr.Markdown("x")
    settings = replace(api.settings, public_url="https://deck.example/tune/")
    app = create_app(api, Views(api), {"/": Page(blocks=english), "/zh": Page(blocks=chinese)}, settings)
    proxied = {"Host": "deck.example", "X-Forwarded-Proto": "https"}
    with TestClient(app, base_url=BASE, headers=proxied, follow_redirects=False) as client:
        assert client.get(f"{kept}/config").json()["root"] == "https://deck.example/tune"
        assert client.get(f"{kept}/zh/config").json()["root"] == "https://deck.example/tune/zh"
        assert 'window.tunedeck={"root": "/tune"}' in client.get(f"{kept}/zh/", headers=HTML).text
        assert client.get(f"{kept}/theme.css").status_code == 200
        assert client.get(f"{kept}{asset_url('app.js')}").status_code == 200
        assert client.get(f"{kept}/api/state").status_code == 200
        assert client.get(f"{kept}/gradio_api/file=/etc/passwd").status_code == 403
        assert client.get(f"{kept}/run", headers={**HTML, "Cookie": "lang=zh"}).headers["location"] == "/tune/zh/run"
        assert client.get(f"{kept}/lang/en?next=/zh/run").headers["location"] == "/tune/run"
        with client.websocket_connect(f"{kept}/api/ws", headers={"Origin": "https://deck.example"}) as opened:
            assert json.loads(opened.receive_text())["host"]
