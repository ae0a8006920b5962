"use strict";
// Theme, sorting, filters, switches, cards, hints. Without it the page still reads.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => root.querySelector(selector);
  const root = document.documentElement;

  // ---------------------------------------------------------------- theme
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";
  const theme = one("#theme");
  const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  prefersDark.addEventListener("change", nameTheme);
  nameTheme();

  // ---------------------------------------------------------------- sorting
  const compare = (a, b, isNumber) => isNumber ? a - b : a.localeCompare(b, "en", { numeric: true });

  const sortBy = (header) => {
    const table = header.closest("table"), body = table.tBodies[0];
    const column = header.cellIndex, isNumber = header.classList.contains("number");
    const first = isNumber ? "descending" : "ascending", second = isNumber ? "ascending" : "descending";
    const way = header.getAttribute("aria-sort") === first ? second : first;
    all("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", way);
    const keyed = [...body.rows].map((row) => [row.cells[column].dataset.key, row]);
    const known = keyed.filter(([key]) => key !== "");
    known.sort(([a], [b]) => compare(a, b, isNumber) * (way === "ascending" ? 1 : -1));
    const empty = keyed.filter(([key]) => key === "");
    body.append(...[...known, ...empty].map(([, row]) => row));
  };

  // ---------------------------------------------------------------- filters
  const has = (element, words) => words.every((word) => element.textContent.toLowerCase().includes(word));
  const wordsOf = (field) => field.value.toLowerCase().split(/\s+/).filter(Boolean);

  const filterTable = (bar) => {
    const table = one("table", bar.parentNode), rows = [...table.tBodies[0].rows];
    const words = wordsOf(one("[data-filter=text]", bar));
    const chosen = all("select[data-filter]", bar).filter((field) => field.value);
    rows.forEach((row) => {
      row.hidden = !has(row, words) || chosen.some((field) => row.dataset[field.dataset.filter] !== field.value);
    });
    one("output", bar).textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  };

  const search = (field) => {
    const words = wordsOf(field), box = field.closest(".errors");
    const found = all(".example", box);
    found.forEach((example) => { example.hidden = !has(example, words); });
    all("details.examples", box).forEach((list) => {
      const shown = all(".example:not([hidden])", list).length;
      list.hidden = !shown;
      if (words.length) list.open = true;
    });
    const shown = all("[data-panel]:not([hidden]) .example:not([hidden])", box).length;
    one("output", box).textContent = words.length ? `${shown} found` : "";
  };

  // ---------------------------------------------------------------- switches
  const turn = (input) => {
    all(`[data-panel="${CSS.escape(input.name)}"]`).forEach((panel, n) => { panel.hidden = String(n) !== input.value; });
    const field = one("#search");
    if (field && input.closest(".errors")) search(field);
  };

  // ---------------------------------------------------------------- one candidate, lit everywhere
  const light = (number) => {
    all(".lit").forEach((element) => element.classList.remove("lit"));
    root.classList.toggle("has-lit", number !== null);
    if (number !== null) all(`[data-candidate="${number}"]`).forEach((element) => element.classList.add("lit"));
  };

  // ---------------------------------------------------------------- what floats
  const gap = 10;
  const within = (value, room) => Math.max(gap, Math.min(value, room - gap));

  /** Below its anchor, or above it where there is no room. */
  const floatBelow = (box, anchor) => {
    box.hidden = false;
    const at = anchor.getBoundingClientRect(), below = at.bottom + gap;
    const fits = below + box.offsetHeight + gap <= innerHeight;
    box.style.top = `${fits ? below : at.top - gap - box.offsetHeight}px`;
    box.style.left = `${within(at.left, root.clientWidth - box.offsetWidth)}px`;
  };

  /** Beside the name or the whole picture, so that it covers neither. */
  const floatBeside = (box, anchor) => {
    box.hidden = false;
    const at = anchor.getBoundingClientRect(), around = anchor.closest("th, svg").getBoundingClientRect();
    const room = root.clientWidth - box.offsetWidth;
    const left = around.right + gap, fits = left + gap <= room;
    box.style.left = `${within(fits ? left : around.left - gap - box.offsetWidth, room)}px`;
    box.style.top = `${within(at.top - box.offsetHeight / 3, innerHeight - box.offsetHeight)}px`;
  };

  const card = one("#card"), tip = one("#tip");
  let pinned = null, waiting = 0, isQuiet = false;

  const showCard = (anchor) => {
    const number = anchor.dataset.candidate, source = document.getElementById(`plan-${number}`);
    if (!source) return;
    const copy = source.cloneNode(true);
    copy.removeAttribute("id");
    const close = document.createElement("button");
    close.type = "button";
    close.className = "close";
    close.textContent = "×";
    close.setAttribute("aria-label", "Close");
    card.replaceChildren(close, copy);
    card.setAttribute("aria-label", source.dataset.name);
    card.scrollTop = 0;
    floatBeside(card, anchor);
    light(number);
  };

  const hideCard = () => {
    const anchor = pinned;
    pinned = null;
    card.hidden = true;
    light(null);
    if (!anchor || !card.contains(document.activeElement)) return;
    isQuiet = true;
    anchor.focus?.();
    isQuiet = false;
  };

  const pin = (anchor) => {
    showCard(anchor);
    pinned = anchor;
    card.focus({ preventScroll: true });
  };

  const later = (act, wait) => {
    clearTimeout(waiting);
    waiting = setTimeout(act, wait);
  };

  const showTip = (anchor) => {
    tip.textContent = anchor.dataset.hint;
    floatBelow(tip, anchor);
  };

  /** What shows a card: the name of a plan, or its mark in a picture. */
  const planAt = (target) => target.closest(".plan, svg [data-candidate]");

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "mouse" || pinned) return;
    const plan = planAt(event.target), row = event.target.closest("tr[data-candidate]");
    if (plan) later(() => showCard(plan), 120);
    else if (event.target.closest("#card")) clearTimeout(waiting);
    else if (!card.hidden) later(hideCard, 250);
    else light(row ? row.dataset.candidate : null);
  });

  document.addEventListener("pointerover", (event) => {
    const hint = event.target.closest(".hint");
    if (hint) showTip(hint);
    else tip.hidden = true;
  });

  document.addEventListener("focusin", (event) => {
    if (isQuiet) return;
    const hint = event.target.closest(".hint");
    tip.hidden = true;
    if (hint) showTip(hint);
    if (event.target.matches(".plan:focus-visible")) showCard(event.target);
    else if (!card.contains(event.target) && !card.hidden) hideCard();
  });

  // ---------------------------------------------------------------- clicks and keys
  const copy = async (button) => {
    const code = one("code", button.parentNode);
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  };

  document.addEventListener("click", (event) => {
    const { target } = event, sort = target.closest("[data-sort]"), plan = planAt(target);
    if (sort) sortBy(sort.closest("th"));
    else if (plan) pin(plan);
    else if (target.closest("[data-copy]")) copy(target.closest("[data-copy]"));
    else if (target.closest(".close") || !target.closest("#card")) hideCard();
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    hideCard();
    tip.hidden = true;
  });

  document.addEventListener("input", ({ target }) => {
    const bar = target.closest(".filters");
    if (target.type === "radio") turn(target);
    else if (target.id === "search") search(target);
    else if (bar) filterTable(bar);
  });

  addEventListener("scroll", () => { if (!pinned && !card.hidden) hideCard(); }, { passive: true });

  // ---------------------------------------------------------------- where the reader is
  const links = new Map(all(".contents a").map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((seen) => {
    const now = seen.filter((entry) => entry.isIntersecting).at(-1);
    if (!now) return;
    links.forEach((link) => link.removeAttribute("aria-current"));
    links.get(now.target.id)?.setAttribute("aria-current", "true");
  }, { rootMargin: "-20% 0px -70% 0px" });
  all("main > section").forEach((section) => watch.observe(section));
})();
