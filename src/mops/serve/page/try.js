"use strict";
const $ = id => document.getElementById(id);
const CHUNK = 100, SHOWN = 10;
let tasks = {}, table = null;

function make(tag, text = "", className = "") {
  const node = document.createElement(tag);
  node.textContent = text;
  if (className) node.className = className;
  return node;
}

function withKey() {
  return $("key").value ? {Authorization: "Bearer " + $("key").value} : {};
}

async function call(path, body) {
  const headers = withKey();
  if (body) headers["content-type"] = "application/json";
  const options = {method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body)};
  const response = await fetch(path, options);
  const found = await response.json();
  if (response.status === 401) $("key-field").hidden = false;
  if (!response.ok) throw new Error(found.error || "error " + response.status);
  return found;
}

async function describe() {
  tasks = await call("tasks");
  const plan = await call("plan");
  $("plan").textContent = `${plan.plan}, ${(plan.parameters / 1e6).toFixed(2)} M parameters`;
  $("count").textContent = Object.keys(tasks).length;
  const picture = await fetch("plan.svg", {headers: withKey()});
  $("picture").src = URL.createObjectURL(await picture.blob());
  $("picture").alt = plan.picture;
}

// ---- one item

const EXAMPLES = [
  ["A gripping, beautifully acted film.", ""],
  ["How do I learn to swim?", "What is the best way to learn swimming?"],
  ["A man is playing a guitar.", "A woman is slicing an onion."],
];

function bars(shares) {
  const list = make("ul", "", "bars");
  for (const [label, share] of Object.entries(shares)) {
    const row = make("li"), track = make("span", "", "track"), bar = make("i");
    bar.style.width = `${100 * share}%`;
    track.append(bar);
    row.append(make("span", label), track, make("span", `${(100 * share).toFixed(1)} %`));
    list.append(row);
  }
  return list;
}

function dial(value, [low, high]) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const part = Math.min(1, Math.max(0, (value - low) / (high - low)));
  const end = angle => `${60 - 50 * Math.cos(angle)} ${60 - 50 * Math.sin(angle)}`;
  const draw = (name, share) => {
    const path = document.createElementNS(svg.namespaceURI, "path");
    path.setAttribute("class", name);
    path.setAttribute("d", `M 10 60 A 50 50 0 0 1 ${end(Math.PI * share)}`);
    svg.append(path);
  };
  svg.setAttribute("viewBox", "0 0 120 76");
  svg.setAttribute("class", "dial");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${value.toFixed(2)} on a scale from ${low} to ${high}`);
  draw("back", 1);
  if (part > 0.001) draw("front", part);
  for (const [x, number] of [[6, low], [106, high]]) {
    const text = document.createElementNS(svg.namespaceURI, "text");
    text.setAttribute("x", x);
    text.setAttribute("y", 74);
    text.textContent = number;
    svg.append(text);
  }
  return svg;
}

function card(name, answer) {
  const box = make("div"), task = tasks[name];
  const value = answer.probabilities ? answer.prediction : answer.prediction.toFixed(2);
  box.append(make("h3", name), make("p", value, "value"));
  box.append(answer.probabilities ? bars(answer.probabilities) : dial(answer.prediction, task.range));
  return box;
}

function item(text, pair) {
  return pair ? {text, text_pair: pair} : {text};
}

async function answer(event) {
  event.preventDefault();
  const button = event.target.querySelector("button[type=submit]");
  button.disabled = true;
  $("problem").textContent = "";
  try {
    if (!Object.keys(tasks).length) await describe();
    const start = performance.now();
    const found = await call("predict", {items: [item($("text").value, $("pair").value.trim())]});
    const {id, error, ...answers} = found.answers[0];
    if (error) throw new Error(error);
    $("cards").replaceChildren(...Object.entries(answers).map(pair => card(...pair)));
    const total = performance.now() - start;
    $("timing").textContent =
      `${(1000 * found.seconds).toFixed(0)} ms in the server, ${total.toFixed(0)} ms in all`;
  } catch (error) {
    $("problem").textContent = error.message;
  }
  button.disabled = false;
}

// ---- a file

function parse(text) {
  const line = text.slice(0, text.search(/\r?\n|$/)), rows = [];
  const sign = line.split("\t").length > line.split(",").length ? "\t" : ",";
  let row = [], cell = "", quoted = false;
  for (let n = 0; n < text.length; n++) {
    const c = text[n];
    if (quoted) {
      if (c === '"' && text[n + 1] === '"') { cell += c; n++; }
      else if (c === '"') quoted = false;
      else cell += c;
    } else if (c === '"' && !cell) quoted = true;
    else if (c === sign) { row.push(cell); cell = ""; }
    else if (c === "\n") { row.push(cell.replace(/\r$/, "")); rows.push(row); row = []; cell = ""; }
    else cell += c;
  }
  if (cell || row.length) rows.push([...row, cell]);
  const [columns, ...others] = rows.filter(cells => cells.some(Boolean));
  return {columns: columns || [], rows: others};
}

const quote = value => /[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;

async function read(file) {
  if (!file) return;
  table = parse((await file.text()).replace(/^\uFEFF/, ""));
  const choices = table.columns.map((name, n) => new Option(name || `column ${n + 1}`, n));
  $("column").replaceChildren(...choices.map(choice => choice.cloneNode(true)));
  $("column-pair").replaceChildren(new Option("none", -1), ...choices);
  const likely = name => table.columns.findIndex(column => name.test(column));
  $("column").value = Math.max(0, likely(/^(text1?|sentence1?|question1?|premise|review)$/i));
  $("column-pair").value = likely(/^(text2|text_pair|sentence2|question2|hypothesis)$/i);
  $("status").textContent = `${file.name}: ${table.rows.length} rows`;
  $("rows").hidden = false;
  $("download").hidden = true;
  $("preview").replaceChildren();
}

async function answerRows(event) {
  event.preventDefault();
  const button = event.target.querySelector("button[type=submit]");
  const [one, two] = [Number($("column").value), Number($("column-pair").value)];
  const items = table.rows.map(row => item(row[one] || "", two < 0 ? "" : row[two] || ""));
  const answers = [];
  button.disabled = true;
  $("progress").hidden = false;
  try {
    for (let start = 0; start < items.length; start += CHUNK) {
      const found = await call("predict", {items: items.slice(start, start + CHUNK)});
      answers.push(...found.answers);
      $("progress").value = answers.length / items.length;
      $("status").textContent = `${answers.length} of ${items.length} rows answered`;
    }
  } catch (error) {
    $("status").textContent = `${answers.length} of ${items.length} rows answered; then: ${error.message}`;
  }
  offer(answers);
  button.disabled = false;
}

function offer(answers) {
  const names = Object.keys(tasks).filter(name => answers.some(row => row[name]));
  const columns = [...table.columns, ...names.map(name => "predicted " + name), "error"];
  const lines = answers.map((row, n) => [
    ...table.columns.map((_, k) => table.rows[n][k] ?? ""),
    ...names.map(name => row[name] ? String(row[name].prediction) : ""),
    row.error || "",
  ]);
  const text = [columns, ...lines].map(cells => cells.map(quote).join(",")).join("\r\n") + "\r\n";
  const link = $("download");
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  link.hidden = !answers.length;
  const rows = [columns, ...lines.slice(0, SHOWN)].map((cells, n) => {
    const row = make("tr");
    row.append(...cells.map(cell => make(n ? "td" : "th", cell)));
    return row;
  });
  $("preview").replaceChildren(...rows);
}

// ---- start

for (const [text, pair] of EXAMPLES) {
  const button = make("button", pair ? `${text} / ${pair}` : text);
  button.type = "button";
  button.addEventListener("click", () => {
    [$("text").value, $("pair").value] = [text, pair];
    $("ask").requestSubmit();
  });
  $("examples").append(button);
}
$("ask").addEventListener("submit", answer);
$("rows").addEventListener("submit", answerRows);
$("file").addEventListener("change", event => read(event.target.files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  $("drop").addEventListener(kind, event => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") read(event.dataTransfer.files[0]);
  });
}
describe().catch(error => { $("problem").textContent = error.message; });
