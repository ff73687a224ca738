"""Requests to the page of all heads."""

import http.client
import json
from collections.abc import Mapping
from typing import Any

from heedful.serve.explorer import Explorer

HEADERS = {"Content-Type": "application/json", "X-Heedful": "1"}


def send(
    explorer: Explorer, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = HEADERS
) -> tuple[int, Any, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", explorer.server_port, timeout=20)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        content = response.read().decode()
        return response.status, json.loads(content) if content.startswith("{") else content, response
    finally:
        connection.close()
