import { $, ask, bar, draw, make } from "./base.js";
import { format, parse } from "./csv.js";
import { pieces } from "./tags.js";

const CHUNK = 100, SHOWN = 10, TRIES = 8; // rows of a request, rows of the preview, of a busy server
let tasks = {}, table = null;

async function describe() {
  tasks = await (await ask("tasks")).json();
  const plan = await (await ask("plan")).json(), names = Object.keys(tasks);
  $("plan").textContent = `${plan.plan}, ${(plan.parameters / 1e6).toFixed(2)} M parameters`;
  $("count").textContent = names.length;
  const drawing = new DOMParser().parseFromString(await (await ask("plan.svg")).text(), "image/svg+xml");
  $("picture").replaceChildren(document.importNode(drawing.documentElement, true));
  $("paths").append(...["", ...names].map(choice));
  light(names);
}

// ---- the path of an answer through the plan

/** One of the switches above the picture; the first is for all tasks that have answered. */
function choice(name) {
  const label = make("label"), input = make("input");
  Object.assign(input, { type: "radio", name: "path", value: name, checked: !name });
  input.addEventListener("change", () => light());
  label.append(input, make("span", name || "all answers"));
  return label;
}

function light(answered = light.answered) {
  light.answered = answered;
  const chosen = document.querySelector("#paths :checked")?.value;
  const lit = chosen ? [chosen] : answered;
  for (const box of document.querySelectorAll("#picture [data-for]")) {
    const isPassed = box.dataset.for.split(" ").some((task) => lit.includes(task));
    box.classList.toggle("passed", isPassed);
    box.classList.toggle("dim", !isPassed);
  }
  const lines = chosen ? sharing(chosen, Object.keys(tasks)) : sharingOfAll(answered);
  $("shared").replaceChildren(...lines.map((line) => make("li", line)));
}

/** Level of the picture, from below -> which of the tasks have a copy together there. */
function levels(among) {
  const found = new Map();
  for (const box of [...document.querySelectorAll("#picture [data-for]")].reverse()) {
    const users = box.dataset.for.split(" ").filter((task) => among.includes(task));
    if (!users.length) continue;
    const own = found.get(box.dataset.at) || new Set();
    found.set(box.dataset.at, own.add(users.join(" + ")));
  }
  return found;
}

/** Neighbouring levels with the same words become one line. */
function inLines(found, words) {
  const runs = [];
  for (const [level, sets] of found) {
    const text = words([...sets]);
    if (runs.at(-1)?.text === text) runs.at(-1).last = level;
    else runs.push({ first: level, last: level, text });
  }
  return runs.map(({ first, last, text }) => `${first === last ? first : `${first} to ${last}`}: ${text}`);
}

function sharingOfAll(answered) {
  if (answered.length < 2) return sharing(answered[0], Object.keys(tasks));
  const words = (sets) => {
    const together = sets.filter((users) => users.includes(" + "));
    return together.length ? `one copy for ${together.join("; ")}` : "a copy for each task";
  };
  return inLines(levels(answered), words);
}

function sharing(task, names) {
  return inLines(levels(names), (sets) => {
    const own = sets.map((users) => users.split(" + ")).filter((users) => users.includes(task));
    const others = [...new Set(own.flat())].filter((name) => name !== task);
    return others.length ? `${task} shares with ${others.join(", ")}` : `${task} alone`;
  });
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
    const row = make("li");
    row.append(...bar(share, label, `${(100 * share).toFixed(1)} %`));
    list.append(row);
  }
  return list;
}

function dial(value, [low, high], number) {
  const part = Math.min(1, Math.max(0, (value - low) / (high - low)));
  const end = (angle) => `${60 - 50 * Math.cos(angle)} ${60 - 50 * Math.sin(angle)}`;
  const arc = (name, share) => draw("path", { class: name, d: `M10 60A50 50 0 0 1 ${end(Math.PI * share)}` });
  const label = (x, end) => draw("text", { x, y: 74, "text-anchor": "middle" }, end);
  const name = `${number} on a scale from ${low} to ${high}`;
  return draw("svg", { viewBox: "0 0 120 78", class: "dial", role: "img", "aria-label": name },
    arc("back", 1), ...(part > 0.001 ? [arc("front", part)] : []), label(10, low), label(110, high));
}

/** With the decimals that matter on the task's range, or beside the spread of its training labels. */
function rounded(value, { range, scale }) {
  const spread = range ? range[1] - range[0] : scale ? scale[1] : Math.abs(value) || 1;
  return value.toFixed(Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(spread)))));
}

function shown(name, { prediction, probabilities }, text) {
  if (typeof prediction === "number") return rounded(prediction, tasks[name]);
  if (!Array.isArray(prediction)) return prediction;
  if (probabilities) return prediction.join(", ") || "none";
  const marked = pieces(text, prediction, tasks[name].labels).filter((piece) => piece.kind);
  return marked.map((piece) => `${piece.text} (${piece.kind})`).join(", ") || "no tag";
}

// As `mops predict` writes it.
function written({ prediction, probabilities }) {
  if (!Array.isArray(prediction)) return String(prediction);
  return probabilities ? JSON.stringify(prediction) : prediction.join(" ");
}

function tagged(text, tags, labels) {
  const line = make("p", "", "tagged");
  for (const piece of pieces(text, tags, labels)) {
    const part = make(piece.kind ? "mark" : "span", piece.text);
    if (piece.colour !== undefined) part.className = `entity-${piece.colour}`;
    if (piece.kind) part.append(" ", make("small", piece.kind));
    line.append(part, " ");
  }
  return line;
}

function detail(name, { prediction, probabilities }, text) {
  const { range, scale, labels } = tasks[name];
  if (probabilities) return bars(probabilities);
  if (Array.isArray(prediction)) return tagged(text, prediction, labels);
  if (range) return dial(prediction, range, rounded(prediction, tasks[name]));
  if (!scale) return "";
  const [mean, deviation] = scale.map((number) => rounded(number, tasks[name]));
  return make("p", `The training labels are ${mean} ± ${deviation}: mean and standard deviation.`, "note");
}

function card(name, answer, text) {
  const box = make("div"), isTagged = Array.isArray(answer.prediction) && !answer.probabilities;
  box.append(make("h3", name), ...(isTagged ? [] : [make("p", shown(name, answer, text), "value")]));
  box.append(detail(name, answer, text));
  box.addEventListener("pointerenter", () => choose(name));
  box.addEventListener("pointerleave", () => choose(""));
  return box;
}

function choose(name) {
  for (const input of document.querySelectorAll("#paths input")) input.checked = input.value === name;
  light();
}

function item(text, pair) {
  return pair ? {text, text_pair: pair} : {text};
}

const predict = async (items) => (await ask("predict", {items})).json();

async function answer(event) {
  event.preventDefault();
  const button = event.target.querySelector("button[type=submit]");
  button.disabled = true;
  $("problem").textContent = $("warnings").textContent = "";
  try {
    if (!Object.keys(tasks).length) await describe();
    const start = performance.now();
    const text = $("text").value;
    const found = await predict([item(text, $("pair").value.trim())]);
    const {id, error, warnings = [], ...answers} = found.answers[0];
    if (error) throw new Error(error);
    const total = performance.now() - start;
    $("cards").replaceChildren(...Object.entries(answers).map((pair) => card(...pair, text)));
    $("warnings").textContent = warnings.join("; ");
    $("spoken").textContent =
      Object.entries(answers).map(([name, one]) => `${name}: ${shown(name, one, text)}`).join("; ");
    choose("");
    light(Object.keys(answers));
    $("timing").textContent =
      `${(1000 * found.seconds).toFixed(0)} ms in the server, ${total.toFixed(0)} ms in all`;
  } catch (error) {
    $("problem").textContent = error.message;
  }
  button.disabled = false;
}

// ---- a file

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

/** The answers to a part of the rows: fewer at a time, or later, if the server says so. */
async function* inParts(items) {
  let size = CHUNK, tries = 0;
  for (let start = 0; start < items.length;) {
    try {
      const found = await predict(items.slice(start, start + size));
      yield found.answers;
      start += found.answers.length;
      tries = 0;
    } catch (error) {
      if (error.status === 413 && size > 1) size = Math.ceil(size / 2);
      else if (error.status === 503 && tries++ < TRIES) await new Promise((go) => setTimeout(go, 1000 * error.wait));
      else throw error;
    }
  }
}

async function answerRows(event) {
  event.preventDefault();
  const button = event.target.querySelector("button[type=submit]");
  const [one, two] = [Number($("column").value), Number($("column-pair").value)];
  const items = table.rows.map((row) => item(row[one] || "", two < 0 ? "" : row[two] || ""));
  const answers = [], start = performance.now();
  button.disabled = true;
  $("progress").hidden = false;
  const say = (more) => { $("status").textContent = `${answers.length} of ${items.length} rows answered${more}`; };
  try {
    for await (const part of inParts(items)) {
      answers.push(...part);
      $("progress").value = answers.length / items.length;
      say("");
    }
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    const [wrong, warned] = ["error", "warnings"].map((key) => answers.filter((row) => row[key]).length);
    const problems = [wrong && `${wrong} with an error`, warned && `${warned} with warnings`].filter(Boolean);
    say(` in ${seconds} s${problems.length ? `; ${problems.join(", ")}, see the file` : ""}`);
  } catch (error) {
    say(`; then: ${error.message}`);
  }
  offer(answers);
  button.disabled = false;
}

function offer(answers) {
  const names = Object.keys(tasks).filter(name => answers.some(row => row[name]));
  const wrong = ["error", "warnings"].filter((key) => answers.some((row) => row[key]));
  const columns = [...table.columns, ...names.map(name => "predicted " + name), ...wrong];
  const lines = answers.map((row, n) => [
    ...table.columns.map((_, k) => table.rows[n][k] ?? ""),
    ...names.map(name => row[name] ? written(row[name]) : ""),
    ...wrong.map((key) => [row[key] || []].flat().join("; ")),
  ]);
  const link = $("download");
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([format([columns, ...lines])], {type: "text/csv"}));
  link.hidden = !answers.length;
  const head = makeRows("thead", "th", [columns]), body = makeRows("tbody", "td", lines.slice(0, SHOWN));
  $("preview").replaceChildren(head, body);
}

function makeRows(part, cell, lines) {
  const whole = make(part);
  for (const texts of lines) {
    const row = make("tr");
    row.append(...texts.map(text => make(cell, text)));
    whole.append(row);
  }
  return whole;
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
    if (kind !== "drop") return;
    $("file").files = event.dataTransfer.files; // its name is shown there
    read($("file").files[0]);
  });
}
describe().catch(error => { $("problem").textContent = error.message; });
