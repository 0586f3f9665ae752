"use strict";
const $ = id => document.getElementById(id), svg = $("map"), SVG = "http://www.w3.org/2000/svg";
let picture = { boxes: [], edges: [] }; // what the server has laid out
let current = "", pointed = "";         // the boxes that have the focus of the keyboard, and that of the pointer
let opened = "";                        // the object whose details are shown
let lost = "";                          // what to say while the server does not respond

// Texts of objects are untrusted: they become text nodes and attributes, never markup.
function element(parent, name, attributes, text) {
  const e = parent.namespaceURI === SVG ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return parent.appendChild(e);
}
const layer = () => element(svg, "g", {});
const nodes = layer(), edges = layer(), boxes = layer();
const drawn = new Map(); // by id: what is drawn, and its element

function drawLine(parent, l) { element(parent, "text", { class: l.class, x: l.x, y: l.y }, l.text); }

function drawBox(b) {
  const g = element(b.kind === "Node" ? nodes : boxes, "g", { class: `box ${b.kind} ${b.state}`, transform: `translate(${b.x} ${b.y})`,
    role: "button", tabindex: -1, "aria-label": b.label, "aria-haspopup": "dialog", "data-id": b.id });
  element(g, "title", {}, b.label);
  element(g, "rect", { width: b.w, height: b.h, rx: 6 });
  for (const l of b.lines) drawLine(g, l);
  return g;
}

function drawEdge(e) { return element(edges, "path", { class: "edge", d: e.path, ...(e.dashes && { pathLength: e.length, "stroke-dasharray": e.dashes }) }); }

// draw draws what is near the visible part of the page, or all for a printer.
function draw(all) {
  const from = all ? -Infinity : scrollY - svg.getBoundingClientRect().top - scrollY - innerHeight, to = all ? Infinity : from + 3 * innerHeight;
  const wanted = new Set();
  const keep = (id, y, h, source, make) => {
    if (y > to || y + h < from) return;
    wanted.add(id);
    const old = drawn.get(id);
    if (old && (old.source === source || old.text === JSON.stringify(source))) { old.source = source; return; }
    const focused = old && old.element === document.activeElement;
    const e = make(source);
    if (old) old.element.replaceWith(e);
    if (old && source.label !== old.source.label) e.classList.add("changed");
    drawn.set(id, { source, text: JSON.stringify(source), element: e });
    if (focused) e.focus({ preventScroll: true });
  };
  for (const e of picture.edges) keep(`${e.from} ${e.to}`, e.y, e.h, e, drawEdge);
  for (const b of picture.boxes) keep(b.id, b.y, b.h, b, drawBox);
  for (const [id, d] of drawn) if (!wanted.has(id)) { d.element.remove(); drawn.delete(id); }
  for (const [id, d] of drawn) if (d.source.kind) {
    d.element.setAttribute("tabindex", id === current ? 0 : -1);
    d.element.classList.toggle("open", opened !== "" && d.source.opens === opened);
  }
  point();
}

// point emphasizes the edges of a box.
function point() {
  const id = pointed || document.activeElement?.dataset.id;
  for (const d of drawn.values()) if (d.source.from) d.element.classList.toggle("linked", d.source.from === id || d.source.to === id);
}

function show(p) {
  picture = p;
  for (const [name, value] of [["width", p.width], ["height", p.height], ["viewBox", `0 0 ${p.width} ${p.height}`]]) svg.setAttribute(name, value);
  $("headings").setAttribute("width", p.width);
  $("headings").setAttribute("viewBox", `0 -24 ${p.width} 20`);
  $("headings").replaceChildren();
  for (const h of p.headings) drawLine($("headings"), h);
  $("title").textContent = p.title;
  if ($("summary").textContent !== p.summary) $("summary").textContent = p.summary;
  note(lost ? [lost] : p.notes || []);
  $("empty").hidden = p.boxes.length > 0;
  if (!p.boxes.some(b => b.id === current)) current = p.boxes.find(b => b.kind === "Listener")?.id || p.boxes[0]?.id || "";
  draw();
}

function note(notes) {
  $("notes").classList.toggle("lost", lost !== "");
  if ($("notes").innerText === notes.join("\n")) return;
  $("notes").replaceChildren();
  for (const n of notes) element($("notes"), "li", {}, n);
}

// load asks for the picture. A later request replaces one that has no response yet.
let asking = new AbortController();
async function load() {
  asking.abort();
  asking = new AbortController();
  const filter = new URLSearchParams({ q: $("query").value });
  if ($("wrong").checked) filter.set("wrong", "1");
  $("svg").href = `map.svg?${filter}`;
  try {
    const response = await fetch(`picture?${filter}`, { signal: asking.signal });
    show(await response.json());
    svg.dataset.query = filter.get("q");
  } catch (e) {
    if (e.name !== "AbortError") disconnected();
  }
}

function disconnected() {
  if (!lost) lost = `The command does not respond any more. The picture is that of ${new Date().toLocaleTimeString()}.`;
  note([lost]);
}

function findings(list, all) {
  list.replaceChildren();
  for (const f of all) {
    const li = element(list, "li", { class: f.state });
    element(li, "span", { class: "mark" }, f.mark);
    element(li, "span", { class: "object" }, f.object);
    element(li, "span", { class: "said" }, f.text);
  }
}

// showDetails shows the details of an object.
async function showDetails(id) {
  if (!id) return;
  const again = id === opened;
  opened = id;
  const response = await fetch(`details?${new URLSearchParams({ id })}`);
  if (id !== opened) return;
  if (!response.ok) return hideDetails();
  const d = await response.json();
  $("object").textContent = d.title;
  $("problem").replaceChildren();
  for (const p of d.problem) {
    element($("problem"), "p", {}, p.object);
    element($("problem"), "p", { class: "said" }, `${p.mark} ${p.text}`);
    element($("problem"), "p", {}, `What to do: ${p.remedy}`);
  }
  findings($("path"), d.findings);
  $("volumes").replaceChildren();
  for (const v of d.volumes) {
    element($("volumes"), "h3", {}, `Files of volume ${v.volume}`);
    const list = element($("volumes"), "dl", {});
    for (const [path, content] of v.files) { element(list, "dt", {}, path); element(list, "dd", {}, content); }
  }
  $("details").hidden = false;
  $("reach").hidden = !d.connects;
  draw();
  if (again) return;
  $("object").focus();
  if (d.connects) reach(id);
}

async function reach(id) {
  $("connections").replaceChildren();
  element($("connections"), "li", {}, "…");
  const response = await fetch(`connect?${new URLSearchParams({ id })}`);
  if (response.ok && id === opened) findings($("connections"), await response.json());
}

function hideDetails() {
  opened = "";
  $("details").hidden = true;
  draw();
  moveTo(picture.boxes.find(b => b.id === current));
}

// moveTo moves the focus of the keyboard to a box, which may be outside the visible part of the page.
function moveTo(b) {
  if (!b) return;
  current = b.id;
  const y = svg.getBoundingClientRect().top + b.y, head = document.querySelector("header").offsetHeight;
  if (y < head + 8) scrollBy(0, y - head - 60);
  else if (y + b.h > innerHeight) scrollBy(0, y + b.h - innerHeight + 60);
  draw();
  drawn.get(b.id)?.element.focus({ preventScroll: true });
}

// next returns the box in a direction: along an edge to the side, or else the nearest one of the column.
function next(b, key) {
  const middle = x => x.y + x.h / 2, byDistance = (x, y) => Math.abs(middle(x) - middle(b)) - Math.abs(middle(y) - middle(b));
  const rows = picture.boxes.filter(x => x.kind === b.kind).sort((x, y) => x.y - y.y), at = rows.indexOf(b);
  if (key === "ArrowDown") return rows[at + 1];
  if (key === "ArrowUp") return rows[at - 1];
  if (key === "Home") return rows[0];
  if (key === "End") return rows.at(-1);
  const right = key === "ArrowRight", order = ["Address", "Exposure", "Listener", "Pod", "Node"];
  const ids = new Set(picture.edges.filter(e => (right ? e.from : e.to) === b.id).map(e => right ? e.to : e.from));
  const linked = picture.boxes.filter(x => ids.has(x.id));
  const kind = order[order.indexOf(b.kind) + (right ? 1 : -1)];
  return (linked.length ? linked : picture.boxes.filter(x => x.kind === kind)).sort(byDistance)[0];
}

svg.addEventListener("click", e => {
  const b = picture.boxes.find(b => b.id === e.target.closest(".box")?.dataset.id);
  if (b) { current = b.id; showDetails(b.opens); }
});
svg.addEventListener("pointerover", e => { pointed = e.target.closest(".box")?.dataset.id || ""; point(); });
svg.addEventListener("focusin", point);
svg.addEventListener("keydown", e => {
  const b = picture.boxes.find(b => b.id === e.target.dataset.id);
  if (!b || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "Enter" || e.key === " ") showDetails(b.opens);
  else if (/^(Arrow|Home|End)/.test(e.key)) moveTo(next(b, e.key));
  else return;
  e.preventDefault();
});
document.addEventListener("keydown", e => {
  if (e.key === "Escape" && opened) hideDetails();
  else if (e.key === "/" && document.activeElement !== $("query")) $("query").focus();
  else if (e.key === "ArrowDown" && document.activeElement === $("query")) moveTo(picture.boxes.find(b => b.id === current));
  else return;
  e.preventDefault();
});
$("close").addEventListener("click", hideDetails);
$("query").addEventListener("input", load);
$("wrong").addEventListener("change", load);
addEventListener("scroll", () => requestAnimationFrame(() => draw()), { passive: true });
addEventListener("resize", () => draw());
addEventListener("beforeprint", () => draw(true));
addEventListener("afterprint", () => draw());

const events = new EventSource("events");
events.onmessage = () => { lost = ""; load(); if (opened) showDetails(opened); };
events.onerror = disconnected;
