// The tags of words as entities, as the report marks them.

const SPAN_TAG = /^(O|[BIES](-.+)?)$/, COLOURS = 6;
const kindOf = (tag) => tag.slice(2);

/** Whether tags mark entities: IOB1, IOB2 or BIOES. */
const haveSpans = (labels) => labels.every((label) => SPAN_TAG.test(label));

/** [first word, one past the last, kind] of each entity; a tag without B begins one too. */
function findSpans(tags) {
  const spans = [];
  let before = "O", kind = "", first = 0;
  for (const [n, tag] of [...tags, "O"].entries()) {
    const mark = tag[0], own = kindOf(tag), isOther = own !== kind;
    if (before !== "O" && ("ES".includes(before) || "BSO".includes(mark) || isOther)) spans.push([first, n, kind]);
    if ("BS".includes(mark) || ("EI".includes(mark) && ("ESO".includes(before) || isOther))) first = n;
    [before, kind] = [mark, own];
  }
  return spans;
}

/** Parts of a text in order: entities with their kind and colour, and what lies between them.
 *
 * Tags that are no entities stand at each word; those of a text with other words stand alone.
 */
export function pieces(text, tags, labels) {
  const words = text.trim().split(/\s+/).filter(Boolean);
  if (words.length !== tags.length) return [{ text: tags.join(" ") }];
  if (!haveSpans(labels)) return words.map((word, n) => ({ text: word, kind: tags[n] === "O" ? "" : tags[n] }));
  const kinds = [...new Set(labels.filter((label) => label !== "O").map(kindOf))].sort(), found = [];
  let at = 0;
  for (const [first, stop, kind] of [...findSpans(tags), [words.length, words.length]]) {
    if (first > at) found.push({ text: words.slice(at, first).join(" ") });
    const own = { text: words.slice(first, stop).join(" "), kind: kind || "entity" };
    if (stop > first) found.push({ ...own, colour: kinds.indexOf(kind) % COLOURS });
    at = stop;
  }
  return found;
}
