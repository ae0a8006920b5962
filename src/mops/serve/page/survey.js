import { $, ask, bar, draw, make } from "./base.js";

const OFTEN = 2000, SELDOM = 15000; // milliseconds between looks at a survey; at one that is over
const SIGNS = { finished: "●", running: "◐", paused: "◔", started: "◔", waiting: "○", failed: "✗" };
const ORDER = Object.keys(SIGNS);
let survey = null, lit = "";

const percent = (share) => `${Math.round(100 * Math.min(0.99, Math.max(0.01, share)))} %`;
const number = (score) => (score === null ? "" : score.toFixed(3).replace("-", "−"));
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** Changes only what differs, so that screen readers and the focus are left alone. */
function say(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

function rank(one) {
  return [one.within ?? -1, one.score ?? -1, one.best ?? -1];
}

function ranked(candidates) {
  const before = (a, b) => rank(a).map((value, n) => rank(b)[n] - value).find(Boolean) ?? 0;
  return [...candidates].sort(before);
}

// ---- the head

function showHead(trials) {
  const counts = ORDER.map((state) => [state, trials.filter((one) => one.state === state).length]);
  const known = counts.filter(([, count]) => count).map(([state, count]) => `${count} ${state}`);
  const left = survey.seconds_left, done = trials.filter((one) => one.state === "finished").length;
  document.title = `${survey.name}: ${survey.state}`;
  say("name", survey.name);
  say("state", survey.state);
  $("state").hidden = false;
  say("headline", survey.decision[0] || "No training is finished yet.");
  say("count", `${plural(trials.length, "training")}: ${known.join(", ")}.`);
  const moving = survey.state === "training" && left !== null;
  const budget = survey.budget ? ` A race of ${duration(survey.budget)}: further rounds may follow.` : "";
  say("left", moving ? `About ${duration(left)} left for the planned trainings.${budget}` : budget);
  const share = (one) => (one.steps ? Math.min(1, one.step / one.steps) / one.until : 0);
  const parts = trials.map((one) => (["finished", "failed", "paused"].includes(one.state) ? 1 : share(one)));
  $("progress").value = parts.reduce((sum, part) => sum + part, 0) / Math.max(1, trials.length);
  $("progress").textContent = `${done} of ${trials.length}`;
}

function showNow() {
  const running = survey.candidates.flatMap((one) =>
    one.trials.filter((trial) => trial.state === "running").map((trial) => [one, trial]));
  const rows = running.map(([one, trial]) => {
    const row = make("li"), last = trial.curve.at(-1);
    const steps = trial.steps ? `step ${trial.step} of ${trial.steps}` : `step ${trial.step}`;
    const score = last ? `, ${number(last[1])} on validation` : "";
    row.append(...bar(trial.steps ? trial.step / trial.steps : 0, `${one.name}, seed ${trial.seed}`, steps + score));
    return row;
  });
  $("now").replaceChildren(...rows);
  say("now-note", running.length ? "" : {
    idle: "No training is running at the moment.",
    comparing: "All planned trainings are done and are being compared.",
    "measuring costs": "All planned trainings are done. The costs of the candidates are measured next.",
    finished: "The survey is finished.",
  }[survey.state] || "");
}

// ---- the candidates

function describeTrials(one) {
  const cell = make("td"), box = make("span", "", "signs");
  for (const trial of one.trials) {
    const sign = make("b", SIGNS[trial.state], trial.state);
    sign.title = `seed ${trial.seed}: ${trial.state}`;
    sign.setAttribute("role", "img");
    sign.setAttribute("aria-label", sign.title);
    box.append(sign);
  }
  if (!one.trials.length) box.append(make("span", "not yet planned", "error"));
  cell.append(box);
  return cell;
}

function fill(row, one) {
  const name = row.cells[0].firstChild, score = make("td", "", "number");
  name.textContent = one.name;
  name.style.setProperty("--series", one.colour);
  if (one.score !== null) score.append(number(one.score), make("span", ` ± ${one.stderr.toFixed(3)}`, "error"));
  else if (one.best !== null) score.append(make("span", `${number(one.best)} so far`, "error"));
  const near = make("td", "", "near");
  if (one.within !== null) near.append(...bar(one.within, "", percent(one.within)).slice(1));
  [...row.cells].slice(1).forEach((cell) => cell.remove()); // the first may have the focus
  row.append(score, near, describeTrials(one), make("td", one.cost));
  row.classList.toggle("lit", lit === one.name);
  name.setAttribute("aria-pressed", lit === one.name);
}

function newRow(name) {
  const row = make("tr"), head = make("th"), button = make("button", name, "plan");
  row.dataset.name = name;
  head.scope = "row";
  button.type = "button";
  button.addEventListener("click", () => { lit = lit === name ? "" : name; show(); });
  head.append(button);
  if (name === survey.baseline) head.append(make("span", "baseline", "tag"));
  row.append(head);
  return row;
}

function showCandidates() {
  const body = $("candidates"), rows = new Map([...body.rows].map((row) => [row.dataset.name, row]));
  const wanted = ranked(survey.candidates).map((one) => {
    const row = rows.get(one.name) || newRow(one.name);
    fill(row, one);
    return row;
  });
  if (wanted.some((row, n) => body.rows[n] !== row) || body.rows.length !== wanted.length) {
    const focus = document.activeElement;
    body.replaceChildren(...wanted);
    focus?.focus();
  }
  say("within-title", `within ${survey.worth} of the best`);
  say("score-note", `Score: mean over the finished seeds, on ${survey.judges}, ± one standard error; "so far": the best on the way.`);
  const lines = survey.decision.slice(1);
  if ($("decision").textContent !== lines.join("")) $("decision").replaceChildren(...lines.map((line) => make("li", line)));
}

function showRounds() {
  $("race").hidden = !survey.rounds.length;
  const rows = survey.rounds.map((round) => {
    const row = make("li"), seeds = `seed${round.seeds.length === 1 ? "" : "s"} ${round.seeds.join(", ")}`;
    const part = round.until < 1 ? `, to ${Math.round(100 * round.until)} % of the steps` : "";
    row.append(`${round.candidates.join(", ")}: ${seeds}${part}. `, make("span", round.why, "error"));
    return row;
  });
  $("rounds").replaceChildren(...rows);
}

// ---- the curves

function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, n) => (first + n) * step);
}

/** Names at the ends of lines, moved apart so that they do not overlap. */
function spread(labels, gap, low, high) {
  labels.sort((a, b) => a.y - b.y);
  labels.forEach((label, n) => { label.y = Math.max(label.y, n ? labels[n - 1].y + gap : low); });
  labels.reverse().forEach((label, n) => { label.y = Math.min(label.y, n ? labels[n - 1].y - gap : high); });
}

function showCurves() {
  const lines = survey.candidates.flatMap((one) => one.trials.map((trial) => ({ one, points: trial.curve })));
  const points = lines.flatMap((line) => line.points);
  if (!points.length) return $("curves").replaceChildren(make("p", "No training has been evaluated yet.", "note"));
  const width = Math.max(280, $("curves").clientWidth), height = Math.min(380, 220 + width / 6);
  const names = Math.min(150, width / 3), edge = { left: 44, right: width - names, top: 10, bottom: height - 28 };
  const steps = survey.candidates.flatMap((one) => one.trials.map((trial) => trial.steps || trial.step));
  const most = Math.max(...steps, ...points.map(([step]) => step));
  const scores = points.map(([, score]) => score), pad = (Math.max(...scores) - Math.min(...scores)) / 20 || 0.05;
  const low = Math.min(...scores) - pad, high = Math.max(...scores) + pad;
  const x = (step) => edge.left + ((edge.right - edge.left) * step) / most;
  const y = (score) => edge.bottom - ((edge.bottom - edge.top) * (score - low)) / (high - low);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  svg.setAttribute("aria-label", `Scores of ${survey.candidates.length} candidates by step; the table has the latest.`);
  for (const score of ticks(low, high, 5)) {
    svg.append(draw("path", { d: `M${edge.left} ${y(score)}H${edge.right}`, class: "grid" }));
    svg.append(draw("text", { x: edge.left - 7, y: y(score) + 4, "text-anchor": "end" }, number(score).replace(/0$/, "")));
  }
  for (const step of ticks(0, most, width < 500 ? 3 : 6)) {
    svg.append(draw("text", { x: x(step), y: height - 8, "text-anchor": "middle" }, step.toLocaleString("en")));
  }
  svg.append(draw("text", { x: edge.right + 10, y: height - 8 }, "steps"));
  const labels = [];
  for (const { one, points: own } of lines.filter((line) => line.points.length)) {
    const dim = lit && lit !== one.name ? " dim" : "", [step, score] = own.at(-1);
    const d = own.map(([at, value]) => `${x(at)} ${y(value)}`).join("L");
    svg.append(draw("path", { d: `M${d}`, stroke: one.colour, class: `line${dim}` }));
    svg.append(draw("circle", { cx: x(step), cy: y(score), r: 3, fill: one.colour, class: `end${dim}` }));
    if (!dim) labels.push({ name: one.name, colour: one.colour, y: y(score), from: [x(step), y(score)] });
  }
  labels.sort((a, b) => a.from[0] - b.from[0]); // of several lines the longest has the name
  const single = [...new Map(labels.map((label) => [label.name, label])).values()];
  spread(single, 15, edge.top + 4, edge.bottom);
  for (const { name, colour, y: at, from } of single) {
    const letters = Math.floor((names - 16) / 6.6);
    const text = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
    svg.append(draw("path", { d: `M${from[0] + 4} ${from[1]}L${edge.right + 6} ${at}`, stroke: colour, class: "lead" }));
    svg.append(draw("text", { x: edge.right + 10, y: at + 4, class: "name" }, text));
  }
  return $("curves").replaceChildren(svg);
}

// ---- the loop

function show() {
  if (!survey) return;
  showHead(survey.candidates.flatMap((one) => one.trials));
  showNow();
  showCandidates();
  showRounds();
  showCurves();
}

async function look() {
  clearTimeout(look.next);
  try {
    survey = await (await ask("survey")).json();
    say("problem", "");
    say("read", `Read at ${new Date().toLocaleTimeString()}.`);
    show();
  } catch (error) {
    say("problem", `${error.message}; the page keeps trying.`);
  }
  const pause = document.hidden || survey?.state === "finished" ? SELDOM : OFTEN;
  look.next = setTimeout(look, pause);
}

$("key-field").addEventListener("submit", (event) => { event.preventDefault(); look(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
addEventListener("resize", () => { if (survey) showCurves(); });
look();
