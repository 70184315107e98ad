// The threads of the store. The server filters; the page keeps the parts of the list that were visible.
import { html, useState, useEffect, useRef, get, line, money, tokens, moment, age, State, Problem, quote } from "./parts.js";
import { Rows } from "./plots.js";

const PAGE = 100;

// The list for a query, in pages. A new version loads the visible pages again; the old ones stay until then.
function usePages(question, version) {
  const [state, set] = useState({ question: null, pages: {}, about: null, error: "" });
  const sight = useRef([0, 0]), asked = useRef("");
  const load = (place) => get(`api/threads?${question}&start=${place * PAGE}`).then((found) => {
    if (asked.current !== question) return;  // the query has changed meanwhile
    set((before) => ({ question, about: found, error: "", pages: { ...(before.question === question ? before.pages : {}), [place]: found } }));
  }, (error) => set((before) => ({ ...before, error: error.message })));
  useEffect(() => {
    if (asked.current !== question) sight.current = [0, 0];
    asked.current = question;
    const [first, last] = sight.current;
    for (let place = first; place <= last; place += 1) load(place);
  }, [question, version]);
  const look = (first, last) => {
    const pages = [Math.floor(first / PAGE), Math.floor(Math.max(last - 1, 0) / PAGE)];
    if (state.question !== question || String(pages) === String(sight.current)) return;
    sight.current = pages;
    for (let place = pages[0]; place <= pages[1]; place += 1) if (!state.pages[place]) load(place);
  };
  const at = (place) => { const page = state.pages[Math.floor(place / PAGE)]; return page && page.threads[place % PAGE] ? { one: page.threads[place % PAGE], hit: page.hits[page.threads[place % PAGE].thread] } : null; };
  return { about: state.about, error: state.error, look, at };
}

export function Threads({ version }) {
  const [text, setText] = useState(""), [group, setGroup] = useState(""), [agents, setAgents] = useState(false), [said, setSaid] = useState("");
  const searching = said !== "" && said === text;
  const question = `text=${encodeURIComponent(text)}&group=${group}${agents ? "&agents" : ""}${searching ? "&said" : ""}`;
  const { about, error, look, at } = usePages(question, version);
  const draw = (place, style) => {
    const found = at(place);
    if (!found) return html`<span key=${place} class="thread" style=${style}><span class="soft">…</span></span>`;
    const { one, hit } = found, seen = one.seen || {};
    const title = one.erased ? "[erased]" : one.title || seen.prompt || one.thread;
    return html`<a key=${one.thread} class="thread" data-step style=${style} href=${hit && hit.n ? `#/log/${quote(hit.log)}/talk/${hit.n}` : `#/log/${quote(one.log)}`}><span><span class="title">${line(title, 120)}</span>
      <span class="about">${line((hit && hit.excerpt) || seen.model || one.harness || "", 90)}${one.branches > 1 ? ` · ${one.branches} branches` : ""}<span class="narrow"> · ${money(seen.cost || 0, seen.exact !== false)} · ${age(one.changed)}</span>${(one.tags || []).map((tag) => html` <span class="tag">${line(tag, 30)}</span>`)}</span></span>
      <${State} condition=${one.condition} group=${one.group} />
      <span class="figure wide" title=${`${one.events.toLocaleString()} events`}>${tokens((seen.input || 0) + (seen.output || 0))} tokens</span><span class="figure">${money(seen.cost || 0, seen.exact !== false)}</span><span class="figure age" title=${moment(one.changed)}>${age(one.changed)}</span></a>`;
  };
  const filtered = text.trim() || group;
  return html`<section aria-label="Threads"><form class="bar" role="search" onSubmit=${(event) => { event.preventDefault(); setSaid(text.trim() && text); }}>
      <label class="wide"><span class="hidden">Filter threads; Enter searches what was said</span><input type="search" value=${text} placeholder="Filter by title, model or tag; Enter searches what was said" onInput=${(event) => setText(event.target.value)} /></label>
      <div class="chips" role="group" aria-label="Show">${["", "waiting", "running", "failed"].map((name) => html`<button type="button" aria-pressed=${group === name} onClick=${() => setGroup(name)}>${name || "all"}${about && about.counts[name] > 0 ? html`<span class="many">${about.counts[name].toLocaleString()}</span>` : ""}</button>`)}
      <button type="button" aria-pressed=${agents} title="Also threads of agents inside calls" onClick=${() => setAgents(!agents)}>agents</button></div></form>
    <${Problem} text=${error} />
    <p class="sum" role="status">${about ? html`${about.total.toLocaleString()} ${about.total === 1 ? "thread" : "threads"}${searching ? " where it was said" : ""}, ${money(about.cost)}${about.unread ? html` <span>· reading ${about.unread.toLocaleString()} more</span>` : ""}` : "…"}</p>
    ${about && !about.total && (filtered ? html`<div class="empty"><b>No thread was found.</b><p>${searching ? "These words were not said in any thread." : "No thread fits this filter. Clear it, or press Enter to search in what was said."}</p></div>` : html`<div class="empty"><b>No thread was found: this store is empty.</b><p>Start one with <code>evener chat</code> or <code>evener run</code>. It shows up here as soon as it is written.</p></div>`)}
    ${about && about.total > 0 && html`<${Rows} count=${about.total} row=${60} height=${Math.max(300, innerHeight - 205)} label="List of threads" look=${look} draw=${draw} />`}</section>`;
}
