// What both pages use: elements, drawings, and requests with the key that was typed.

export const $ = (id) => document.getElementById(id);

export function make(tag, text = "", className = "") {
  const node = document.createElement(tag);
  node.textContent = text;
  if (className) node.className = className;
  return node;
}

export function draw(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function bar(share, label, value) {
  const track = make("span", "", "track"), filled = make("i");
  filled.style.width = `${100 * share}%`;
  track.append(filled);
  return [make("span", label), track, make("span", value)];
}

/** Where the server wants a key, its field appears. */
export async function ask(path, body) {
  const headers = $("key").value ? { Authorization: `Bearer ${$("key").value}` } : {};
  if (body) headers["content-type"] = "application/json";
  const response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  if (response.ok) return response;
  if (response.status === 401) $("key-field").hidden = false;
  const found = await response.json().catch(() => ({}));
  const facts = { status: response.status, wait: Number(response.headers.get("retry-after")) || 1 };
  throw Object.assign(new Error(found.error || `error ${response.status}`), facts);
}
