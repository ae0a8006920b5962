// Files of rows: what a person drops on the page, and what is given back.

const SEPARATORS = [",", ";", "\t", "|"];
const DIGITS = "\\p{Nd}+(?:_\\p{Nd}+)*";
const FORMULA = /^'*[=+\-@\t\r＝＋－＠]/; // how a cell begins that a spreadsheet computes
const DECIMAL = `(?:${DIGITS}\\.?(?:${DIGITS})?|\\.${DIGITS})(?:e[+-]?${DIGITS})?`;
const NUMBER = new RegExp(`^\\s*[+-]?(?:${DECIMAL}|inf(?:inity)?|nan)\\s*$`, "iu");

/** The sign that occurs most often in the first line, outside quotes; none: one column. */
function findSeparator(text) {
  const counts = new Map(SEPARATORS.map((sign) => [sign, 0]));
  let quoted = false;
  for (const c of text) {
    if (c === '"') quoted = !quoted;
    else if (quoted) continue;
    else if (c === "\n") break;
    else if (counts.has(c)) counts.set(c, counts.get(c) + 1);
  }
  const most = Math.max(...counts.values());
  return most ? SEPARATORS.find((sign) => counts.get(sign) === most) : "";
}

export function parse(text) {
  const separator = findSeparator(text), rows = [];
  let row = [], cell = "", quoted = false;
  for (let n = 0; n < text.length; n++) {
    const c = text[n];
    if (quoted) {
      if (c === '"' && text[n + 1] === '"') { cell += c; n++; }
      else if (c === '"') quoted = false;
      else cell += c;
    } else if (c === '"' && !cell) quoted = true;
    else if (c === separator) { row.push(cell); cell = ""; }
    else if (c === "\n") { row.push(cell.replace(/\r$/, "")); rows.push(row); row = []; cell = ""; }
    else cell += c;
  }
  if (cell || row.length) rows.push([...row, cell]);
  const [columns, ...others] = rows.filter((cells) => cells.length > 1 || cells[0]);
  return { columns: columns || [], rows: others };
}

/** Lines of CSV in which no spreadsheet computes a cell, by the rule of `mops predict`. */
export function format(rows) {
  const safe = (cell) => (FORMULA.test(cell) && !NUMBER.test(cell) ? `'${cell}` : cell);
  const quote = (cell) => (/[",\n\r]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  return rows.map((cells) => cells.map((cell) => quote(safe(cell))).join(",")).join("\r\n") + "\r\n";
}
