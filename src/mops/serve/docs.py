"""A page that describes the addresses of the server, from its OpenAPI description alone."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

Data = Mapping[str, Any]
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="page/report.css">
<main>
<h1>{title}</h1>
<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>
{addresses}
</main>
</html>
"""


def describe(api: Data) -> str:
    """The page; it loads nothing from elsewhere and needs no script."""
    addresses = "\n".join(
        section(f"{method.upper()} {path}", operation, api)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    )
    title = escape(f"{api['info']['title']} {api['info']['version']}")
    return PAGE.format(title=title, addresses=addresses)


def section(title: str, operation: Data, api: Data) -> str:
    """One address: what it does, takes and returns."""
    parts = [f"<h2>{escape(title)}</h2>"]
    parts += [f"<p>{escape(operation.get('description', operation['summary']))}</p>"]
    names = [each["name"] for each in operation.get("parameters", ())]
    parts += [f"<p>Headers: {escape(', '.join(names))}</p>"] if names else []
    parts += content("Request", operation.get("requestBody", {}), api)
    for status, response in operation["responses"].items():
        parts += content(f"{status}: {response['description']}", response, api)
    return "\n".join(parts)


def content(title: str, message: Data, api: Data) -> Iterator[str]:
    for media in message.get("content", {}).values():
        if schema := resolve(media.get("schema", {}), api):
            text = escape(json.dumps(schema, indent=2, ensure_ascii=False))
            yield f"<h3>{escape(title)}</h3>\n<pre>{text}</pre>"


def resolve(schema: Any, api: Data) -> Any:
    """A schema with the parts that it refers to in their places."""
    if isinstance(schema, list):
        return [resolve(each, api) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return resolve(api["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]], api)
    return {key: resolve(value, api) for key, value in schema.items() if key != "title"}
