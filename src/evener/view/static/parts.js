// Small parts that every screen uses: fetching, texts that hide nothing, Markdown trees, JSON trees.
import { html, render, useState, useEffect, useRef, useMemo, useCallback } from "./htm-preact.js";
export { html, render, useState, useEffect, useRef, useMemo, useCallback };

export async function get(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  const body = await answer.json().catch(() => ({ error: `The viewer answered ${answer.status}.` }));
  if (!answer.ok) throw new Error(body.error || `The viewer answered ${answer.status}.`);
  return body;
}

export async function post(path, value) {
  const answer = await fetch(path, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(value),
  });
  const body = await answer.json().catch(() => ({ error: `The viewer answered ${answer.status}.` }));
  if (!answer.ok) throw new Error(body.error || `The viewer answered ${answer.status}.`);
  return body;
}

// Loads once for each key; `version` loads again while what was loaded stays on the screen.
export function useLoaded(load, key, version = 0) {
  const [state, set] = useState({ key: null, value: null, error: "" });
  useEffect(() => {
    let current = true;
    load().then((value) => current && set({ key, value, error: "" }),
                (error) => current && set({ key, value: null, error: error.message }));
    return () => { current = false; };
  }, [key, version]);
  return state.key === key ? state : { key, value: null, error: "" };
}

// Characters that cannot be seen, or that change the order in which others are read, are written out.
const ACTIVE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0]|[\u{e0100}-\u{e01ef}]/gu;
const written = (char) => "\\u" + char.codePointAt(0).toString(16).padStart(4, "0");

function parted(text, pattern, keep) {
  const parts = [];
  let last = 0;
  for (const hit of String(text).matchAll(pattern)) {
    if (keep.includes(hit[0])) continue;
    if (hit.index > last) parts.push(text.slice(last, hit.index));
    parts.push(html`<span class="unseen" title="a character that cannot be seen">${written(hit[0])}</span>`);
    last = hit.index + hit[0].length;
  }
  if (!parts.length) return text;
  parts.push(text.slice(last));
  return parts;
}

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
  const kind = (row) => row.startsWith("+") ? "added" : row.startsWith("-") ? "removed" : row.startsWith("@@") ? "hunk" : "";
  return text.split("\n").map((row) => html`<span class=${"row " + kind(row)}>${shown(row)}${"\n"}</span>`);
}

// A text of a tool or a user: JSON as a tree, a diff with colours, anything else as it is.
export function Plain({ text, log, n, length }) {
  const [whole, set] = useState(null);
  const [error, fail] = useState("");
  const full = whole ?? text;
  let value;
  const start = full.trimStart()[0];
  if (!length && (start === "{" || start === "[") && full.length < 200000) { try { value = JSON.parse(full); } catch { value = undefined; } }
  const load = () => get(`api/event/${log}/${n}`).then((found) => set(longest(found.event)), (problem) => fail(problem.message));
  return html`<div class="plain">
    ${value && typeof value === "object" ? html`<${Tree} value=${value} raw=${full} />` : isDiff(full) ? html`<${Code} text=${full} lang="diff" />` : html`<pre tabindex="0">${shown(full)}</pre>`}
    ${length > 0 && whole === null && html`<button onClick=${load}>Show all ${length.toLocaleString()} characters</button>`}
    ${error && html`<p role="alert">${error}</p>`}</div>`;
}
function longest(value) {
  let found = "";
  const walk = (one) => {
    if (typeof one === "string") { if (one.length > found.length) found = one; }
    else if (one && typeof one === "object") Object.values(one).forEach(walk);
  };
  walk(value);
  return found.length > 2000000 ? found.slice(0, 2000000) + `\n… (${found.length.toLocaleString()} characters; the export has them all)` : found;
}

export function Tree({ value, raw }) {
  const [plain, set] = useState(false);
  return html`<div class="json"><button class="quiet" aria-pressed=${plain} onClick=${() => set(!plain)}>${plain ? "tree" : "raw"}</button>
    ${plain ? html`<pre tabindex="0">${shown(raw ?? JSON.stringify(value, null, 1))}</pre>` : html`<${Branch} value=${value} open />`}</div>`;
}
function Branch({ name, value, open }) {
  const label = name === undefined ? "" : html`<span class="key">${shown(String(name))}: </span>`;
  if (value === null || typeof value !== "object") return html`<div class="leaf">${label}<span class=${typeof value}>${shown(typeof value === "string" ? value : String(value))}</span></div>`;
  const entries = Object.entries(value);
  const kind = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  return html`<details open=${open || entries.length < 6}><summary>${label}${kind}</summary>${entries.slice(0, 500).map(([key, one]) => html`<${Branch} name=${key} value=${one} />`)}${entries.length > 500 && html`<div>… ${entries.length - 500} more</div>`}</details>`;
}

export const money = (amount, sure = true) => `${sure ? "" : "≥"}$${Number(amount) >= 1 || !Number(amount) ? Number(amount).toFixed(2) : Number(amount).toFixed(4)}`;
export const tokens = (count) => count >= 10000 ? `${(count / 1000).toFixed(0)}k` : count >= 1000 ? `${(count / 1000).toFixed(1)}k` : String(count ?? 0);
export const seconds = (time) => time >= 60 ? `${Math.floor(time / 60)}m ${Math.round(time % 60)}s` : time >= 1 ? `${time.toFixed(1)} s` : `${Math.round(time * 1000)} ms`;
export const moment = (at) => { try { return new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + "Z"; } catch { return "no valid time"; } };
export function age(at) {
  const past = Math.max(0, Date.now() / 1000 - at);
  for (const [size, word] of [[31536000, "y"], [604800, "w"], [86400, "d"], [3600, "h"], [60, "m"]]) if (past >= size) return `${Math.floor(past / size)}${word} ago`;
  return "now";
}
export const WORDS = { approval: "waits for approval", done: "done", running: "running", interrupted: "interrupted", provider_error: "failed", unexpected: "failed", cancelled: "stopped", limit: "stopped at a limit", refusal: "declined", length: "cut at the token limit", repeated: "stopped in a loop", tool_retries: "gave up on a tool", output_retries: "gave up on the schema", empty: "empty", unreadable: "unreadable" };
export const GROUPS = { waiting: ["approval"], failed: ["provider_error", "unexpected", "tool_retries", "output_retries", "unreadable", "interrupted", "limit", "repeated"], running: ["running"] };
export function State({ condition }) {
  const group = Object.keys(GROUPS).find((name) => GROUPS[name].includes(condition)) || "calm";
  return html`<span class=${"state " + group}>${WORDS[condition] || condition || "…"}</span>`;
}
export const Problem = ({ text }) => text ? html`<p class="problem" role="alert">${shown(text)}</p>` : null;
