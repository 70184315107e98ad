// Components that every screen uses: fetching, texts with visible escapes, Markdown trees, JSON trees.
import { html, Component, useState, useEffect } from "./htm-preact.js";
export { html, render, useState, useEffect, useRef, useMemo, useCallback } from "./htm-preact.js";

export const TABS = [["talk", "Conversation"], ["tree", "Tree"], ["time", "Waterfall"], ["context", "Context"], ["sent", "Sent"], ["audit", "Audit"]];
export const go = (path) => { location.hash = path; };
export const quote = encodeURIComponent;  // an id in an address: callers give threads any name
const unquote = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
export function readRoute(hash) {
  const [screen = "", log = "", tab = "talk", n = "0"] = hash.replace(/^#\//, "").split("/");
  return { screen: screen || "threads", log: unquote(log), tab, n: Number(n) || 0 };
}

// The theme follows the system until a user chooses.
const setTheme = (theme) => { if (theme) document.documentElement.dataset.theme = theme; };
export function switchTheme() {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "light" : "dark");
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* it holds for this page, then */ }
}
try { setTheme(localStorage.getItem("theme")); } catch { /* the system decides */ }

export async function get(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  const body = await answer.json().catch(() => ({ error: `The viewer answered ${answer.status}.` }));
  if (!answer.ok) throw new Error(body.error || `The viewer answered ${answer.status}.`);
  return body;
}

export async function post(path, value) {
  const answer = await fetch(path, {
    method: "POST", headers: { "content-type": "application/json" }, body: typeof value === "string" ? value : JSON.stringify(value),
  });
  const body = await answer.json().catch(() => ({ error: `The viewer answered ${answer.status}.` }));
  if (!answer.ok) throw new Error(body.error || `The viewer answered ${answer.status}.`);
  return body;
}

// A component that renders again only when one of its properties is another object.
export const memo = (View) => class extends Component {
  shouldComponentUpdate(next) { return Object.keys(next).some((name) => next[name] !== this.props[name]); }
  render(given) { return html`<${View} ...${given} />`; }
};

// Load once for each key. A new `version` loads again; until then the old value stays on the screen.
export function useLoaded(load, key, version = 0) {
  const [state, set] = useState({ key: null, value: null, error: "" });
  useEffect(() => {
    let current = true;
    load().then((value) => current && set({ key, value, error: "" }),
                (error) => current && set((before) => ({ key, value: before.key === key ? before.value : null, error: error.message })));
    return () => { current = false; };
  }, [key, version]);
  return state.key === key ? state : { key, value: null, error: "" };
}

// Invisible characters, and those that change the reading direction, are shown as escapes.
const ACTIVE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0]|[\u{e0100}-\u{e01ef}]/gu;
const written = (char) => "\\u" + char.codePointAt(0).toString(16).padStart(4, "0");

function parted(text, pattern, keep) {
  const parts = [];
  let last = 0;
  for (const hit of String(text).matchAll(pattern)) {
    if (keep.includes(hit[0])) continue;
    if (hit.index > last) parts.push(text.slice(last, hit.index));
    parts.push(html`<span class="unseen" title="an invisible character">${written(hit[0])}</span>`);
    last = hit.index + hit[0].length;
  }
  if (!parts.length) return text;
  parts.push(text.slice(last));
  return parts;
}

// The same for attributes and options, which cannot contain elements.
export const safe = (text, most = 200) => { const all = String(text ?? "").replace(ACTIVE, (char) => "\n\t".includes(char) ? char : written(char)); return all.length > most ? `${all.slice(0, most - 1)}…` : all; };
export const shown = (text) => parted(text ?? "", ACTIVE, "\n\t");
export const exact = (text) => parted(text ?? "", UNSEEN, " \n");
export const line = (text, most = 160) => {
  const one = String(text ?? "").replace(/\s+/g, " ").trim();
  return shown(one.length > most ? one.slice(0, most - 1) + "…" : one);
};

const TAGS = new Set("p ul ol li blockquote strong em s table thead tbody tr th td hr br code pre h1 h2 h3 h4 h5 h6 span a".split(" "));
export function Markdown({ tree }) {
  return html`<div class="markdown">${tree.map(node)}</div>`;
}
function node(one) {
  if (typeof one === "string") return shown(one);
  const [tag, attributes, children] = one;
  if (!tag) return children.map(node);
  if (!TAGS.has(tag)) return html`<span>${children.map(node)}</span>`;
  if (tag === "a") return html`<a href=${attributes.href} rel="noreferrer noopener" target="_blank">${children.map(node)}<span class="href"> (${line(attributes.href, 80)})</span></a>`;
  if (tag === "pre") return html`<${Code} text=${children[0]} lang=${attributes.lang} />`;
  if (/^h[1-6]$/.test(tag)) return html`<p class="heading">${children.map(node)}</p>`;
  if (tag === "hr" || tag === "br") return html`<${tag} />`;
  return html`<${tag}>${children.map(node)}<//>`;
}

export function Code({ text, lang = "" }) {
  const body = (lang === "diff" || isDiff(text)) ? html`<${DiffLines} text=${text} />` : shown(text);
  return html`<figure class="code">${lang && html`<figcaption>${line(lang, 20)}</figcaption>`}<pre tabindex="0">${body}</pre></figure>`;
}
const isDiff = (text) => /^(diff --git |--- .+\n\+\+\+ )/m.test(text.slice(0, 2000));
function DiffLines({ text }) {
  const kind = (row) => /^(\+\+\+|---|@@|diff )/.test(row) ? "hunk" : row.startsWith("+") ? "added" : row.startsWith("-") ? "removed" : "";
  return text.replace(/\n$/, "").split("\n").map((row) => html`<span class=${"row " + kind(row)}>${shown(row)}${"\n"}</span>`);
}

const INEXACT = /[:[,]\s*-?\d{16,}/;  // numbers that JavaScript would round
// A text of a tool or a user: JSON as a tree, a diff with colours, anything else as it is.
export function Plain({ text = "", log, n, length = 0, place = "" }) {
  const [whole, set] = useState(null);
  const [error, fail] = useState("");
  const full = whole ?? text;
  let value;
  const start = full.trimStart()[0];
  if (!length && (start === "{" || start === "[") && full.length < 200000 && !INEXACT.test(full)) { try { value = JSON.parse(full); } catch { value = undefined; } }
  const load = () => get(`api/event/${quote(log)}/${n}`).then((found) => set(find(found.event, place)), (problem) => fail(problem.message));
  return html`<div class="plain">
    ${value && typeof value === "object" ? html`<${Tree} value=${value} raw=${full} />` : isDiff(full) ? html`<${Code} text=${full} lang="diff" />` : html`<pre tabindex="0">${shown(full)}</pre>`}
    ${length > 0 && whole === null && html`<button onClick=${load}>Show all ${length.toLocaleString()} characters</button>`}
    ${error && html`<p role="alert">${error}</p>`}</div>`;
}
const MOST = 2000000;
function find(event, place) {
  const there = place.split("/").reduce((value, step) => value?.[step], event) ?? "";
  const text = typeof there === "string" ? there : there.text ?? there.raw ?? JSON.stringify(there, null, 1);
  return text.length > MOST ? `${text.slice(0, MOST)}\n… (${text.length.toLocaleString()} characters; the export has them all)` : text;
}

export function Tree({ value, raw }) {
  const [plain, set] = useState(false);
  return html`<div class="json"><button class="quiet" aria-pressed=${plain} onClick=${() => set(!plain)}>${plain ? "tree" : "raw"}</button>
    ${plain ? html`<pre tabindex="0">${shown(raw ?? JSON.stringify(value, null, 1))}</pre>` : html`<${Branch} value=${value} open />`}</div>`;
}
const DEEP = 20;  // levels that are rendered at first; deeper ones when the user opens them
function Branch({ name, value, open, depth = 1 }) {
  const [drawn, draw] = useState(depth < DEEP);
  const label = name === undefined ? "" : html`<span class="key">${shown(String(name))}: </span>`;
  if (value === null || typeof value !== "object") return html`<div class="leaf">${label}<span class=${typeof value}>${shown(typeof value === "string" ? value : String(value))}</span></div>`;
  const entries = Object.entries(value);
  const kind = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  return html`<details open=${drawn && (open || entries.length < 6)} onToggle=${() => draw(true)}><summary>${label}${kind}</summary>${drawn && entries.slice(0, 500).map(([key, one]) => html`<${Branch} name=${key} value=${one} depth=${depth % DEEP + 1} />`)}${entries.length > 500 && html`<div>… ${entries.length - 500} more</div>`}</details>`;
}

// Quote the words of a command for a shell.
export const spell = (words) => words.map((word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`).join(" ");
export const money = (amount, sure = true) => `${sure ? "" : "≥"}$${Number(amount) >= 1 || !Number(amount) ? Number(amount).toFixed(2) : Number(amount).toFixed(4)}`;
export const tokens = (count) => count >= 10000 ? `${(count / 1000).toFixed(0)}k` : count >= 1000 ? `${(count / 1000).toFixed(1)}k` : String(count ?? 0);
export const seconds = (time) => time >= 60 ? `${Math.floor(time / 60)}m ${Math.round(time % 60)}s` : time >= 1 ? `${time.toFixed(1)} s` : `${Math.round(time * 1000)} ms`;
export const moment = (at) => { try { return new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + "Z"; } catch { return "no valid time"; } };
export function age(at) {
  const past = Math.max(0, Date.now() / 1000 - at);
  for (const [size, word] of [[31536000, "y"], [604800, "w"], [86400, "d"], [3600, "h"], [60, "m"]]) if (past >= size) return `${Math.floor(past / size)}${word} ago`;
  return "now";
}
export const WORDS = { approval: "waits for approval", done: "done", running: "running", interrupted: "interrupted", provider_error: "failed", unexpected: "failed", cancelled: "stopped", limit: "stopped at a limit", refusal: "declined", length: "cut at the token limit", repeated: "stopped in a loop", tool_retries: "gave up on a tool", output_retries: "gave up on the schema", empty: "empty", unreadable: "unreadable", erased: "erased", decided: "decided, not resumed" };
export const State = ({ condition, group }) => html`<span class=${"state " + (group || "calm")}>${WORDS[condition] || line(condition, 30) || "…"}</span>`;
// Losses, grouped by kind.
export function Losses({ losses }) {
  const groups = new Map();
  for (const loss of losses) {
    const key = `${loss.code || loss.kind} ${loss.what} ${loss.why}`;
    groups.set(key, [...(groups.get(key) || []), loss]);
  }
  return [...groups.values()].map(([first, ...more]) => {
    const says = html`<b>loss ${line(first.code || first.kind, 60)}</b> ${line(first.what, 80)}: ${shown(first.why)}`;
    const paths = [first, ...more].map((one) => one.path).filter(Boolean);
    return paths.length ? html`<details class="loss"><summary>${says}${more.length > 0 && html` (${more.length + 1} times)`}</summary>${paths.map((path) => html`<div><code>${line(path, 200)}</code></div>`)}</details>` : html`<p class="loss">${says}${more.length > 0 && html` (${more.length + 1} times)`}</p>`;
  });
}

// Compare the lines of two texts: a common beginning and end are kept, the lines between are removed and added.
export function lineDiff(before, after) {
  const old = before.split("\n"), fresh = after.split("\n");
  let head = 0, tail = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  while (tail < old.length - head && tail < fresh.length - head && old[old.length - 1 - tail] === fresh[fresh.length - 1 - tail]) tail += 1;
  const near = (rows) => rows.map((row) => [" ", row]);
  return [...near(old.slice(Math.max(0, head - 3), head)), ...old.slice(head, old.length - tail).map((row) => ["-", row]), ...fresh.slice(head, fresh.length - tail).map((row) => ["+", row]), ...near(old.slice(old.length - tail).slice(0, 3))];
}

export const Problem = ({ text }) => text ? html`<p class="problem" role="alert">${shown(text)}</p>` : null;
