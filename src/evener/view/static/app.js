// The viewer's screens. Everything that is shown goes through the page as text: nothing from a log is ever read as HTML.
import { html, render, useState, useEffect, useRef, useMemo, useCallback, get, post, useLoaded, shown, exact, line, Markdown, Plain, Tree, Code, money, tokens, seconds, moment, age, State, GROUPS, Problem } from "./parts.js";
import { Rows, Waterfall, Context } from "./plots.js";

const CHUNK = 100;
const TABS = [["talk", "Conversation"], ["tree", "Tree"], ["time", "Waterfall"], ["context", "Context"], ["sent", "Sent"], ["audit", "Audit"]];
const go = (path) => { location.hash = path; };

function useRoute() {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const changed = () => set(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const [screen = "", log = "", tab = "talk", n = "0"] = hash.replace(/^#\//, "").split("/");
  return { screen: screen || "threads", log: decodeURIComponent(log), tab, n: Number(n) || 0 };
}

// One stream for the page: it tells when the log in sight, or any log, has grown.
function useLive(log) {
  const [live, set] = useState({ log: "", events: 0, threads: 0, error: "", on: false });
  useEffect(() => {
    const source = new EventSource(`api/live?log=${encodeURIComponent(log)}`);
    source.onmessage = (event) => {
      const told = JSON.parse(event.data);
      set({ log: told.log, events: told.events, threads: JSON.stringify(told.threads), error: told.error, on: true });
    };
    source.onerror = () => set((before) => ({ ...before, on: false }));
    return () => source.close();
  }, [log]);
  return live.log === log ? live : { ...live, events: 0, error: "" };
}

function App() {
  const route = useRoute();
  const live = useLive(route.screen === "log" ? route.log : "");
  const [help, setHelp] = useState(false);
  useKeys(route, setHelp);
  const [tick, setTick] = useState(0);
  const waiting = useLoaded(() => get("api/approvals"), "approvals", `${live.threads} ${tick}`);
  const count = waiting.value ? waiting.value.waiting.length : 0;
  const again = () => setTick((before) => before + 1);
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <header><nav aria-label="Screens"><b>Evener</b>
      <a href="#/" aria-current=${route.screen === "threads" ? "page" : undefined}>Threads</a>
      <a href="#/approvals" aria-current=${route.screen === "approvals" ? "page" : undefined}>Approvals${count ? html` <span class="count">${count}</span>` : ""}</a>
      <span class=${"live " + (live.on ? "on" : "")} role="status">${live.on ? "live" : "not connected"}</span>
      <button class="quiet" aria-expanded=${help} onClick=${() => setHelp(!help)}>Keys</button></nav></header>
    ${help && html`<${Keys} close=${() => setHelp(false)} />`}
    <main id="main" tabindex="-1">${route.screen === "log" ? html`<${Log} key=${route.log} ...${route} live=${live} />`
      : route.screen === "approvals" ? html`<${Approvals} loaded=${waiting} again=${again} />` : html`<${Threads} version=${live.threads} />`}</main>`;
}

// Keys.

const HELP = [["t", "threads"], ["a", "approvals"], ["/", "search"], ["j k", "next, previous"], ["Enter", "open"], ["1 - 6", "the views of a thread"], ["g G", "begin, end"], ["f", "fork after the message in focus"], ["Esc", "leave a field, close this"], ["?", "this list"]];
function Keys({ close }) {
  return html`<section class="keys" aria-label="Keys"><dl>${HELP.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl><button onClick=${close}>Close</button></section>`;
}
function useKeys(route, setHelp) {
  useEffect(() => {
    const pressed = (event) => {
      const field = event.target.closest && event.target.closest("input, textarea, select");
      if (event.key === "Escape") { if (field) field.blur(); setHelp(false); return; }
      if (field || event.ctrlKey || event.metaKey || event.altKey) return;
      const actions = {
        t: () => go("/"), a: () => go("/approvals"), "?": () => setHelp((open) => !open),
        "/": () => { const search = document.querySelector("input[type=search]"); if (search) search.focus(); else go("/"); },
        j: () => step(1), k: () => step(-1),
        g: () => document.dispatchEvent(new CustomEvent("jump", { detail: "begin" })), G: () => document.dispatchEvent(new CustomEvent("jump", { detail: "end" })),
        f: () => { const button = document.activeElement && document.activeElement.querySelector("button.fork"); if (button) button.click(); },
      };
      const tab = route.screen === "log" && TABS[Number(event.key) - 1];
      const action = tab ? () => go(`/log/${route.log}/${tab[0]}`) : actions[event.key];
      if (action) { event.preventDefault(); action(); }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [route.screen, route.log]);
}
function step(way) {
  const all = [...document.querySelectorAll("[data-step]")];
  const here = all.indexOf(document.activeElement.closest("[data-step]"));
  const next = all[here < 0 ? 0 : Math.min(Math.max(here + way, 0), all.length - 1)];
  if (next) next.focus();
}

// Threads.

function Threads({ version }) {
  const [text, setText] = useState(""), [only, setOnly] = useState(""), [agents, setAgents] = useState(false);
  const [found, setFound] = useState(null), [tick, setTick] = useState(0);
  const { value, error } = useLoaded(() => get("api/threads"), "threads", `${version} ${tick}`);
  useEffect(() => { if (value && value.unread) { const timer = setTimeout(() => setTick(tick + 1), 700); return () => clearTimeout(timer); } }, [value]);
  const lines = useMemo(() => {
    if (!value) return [];
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = found && found.text === text ? new Set(found.list.map((one) => one.thread)) : null;
    return value.threads.filter((one) => {
      if (!agents && one.harness.includes("/")) return false;
      const seen = one.seen || {};
      if (only && !GROUPS[only].includes(seen.condition)) return false;
      if (hits) return hits.has(one.thread);
      if (!words.length) return true;
      const all = `${one.title || ""} ${seen.prompt || ""} ${seen.model || ""} ${(one.tags || []).join(" ")} ${one.thread}`.toLowerCase();
      return words.every((word) => all.includes(word));
    });
  }, [value, text, only, agents, found]);
  const excerpt = (thread) => { const hit = found && found.text === text && found.list.find((one) => one.thread === thread); return hit ? hit.excerpt : ""; };
  const search = (event) => { event.preventDefault(); if (text.trim()) get(`api/search?text=${encodeURIComponent(text)}`).then((all) => setFound({ text, list: all.found })); };
  const sum = lines.reduce((total, one) => total + ((one.seen && one.seen.cost) || 0), 0);
  return html`<section aria-label="Threads"><form class="bar" role="search" onSubmit=${search}>
      <label class="wide"><span class="hidden">Filter threads; Enter searches what was said</span><input type="search" value=${text} placeholder="Filter; Enter searches what was said" onInput=${(event) => setText(event.target.value)} /></label>
      <div class="chips" role="group" aria-label="Show">${["", "waiting", "running", "failed"].map((name) => html`<button type="button" aria-pressed=${only === name} onClick=${() => setOnly(name)}>${name || "all"}</button>`)}
      <button type="button" aria-pressed=${agents} onClick=${() => setAgents(!agents)}>agents</button></div></form>
    <${Problem} text=${error} />
    <p class="sum" role="status">${lines.length.toLocaleString()} threads, ${money(sum)}${value && value.unread ? html` <span>· reading ${value.unread.toLocaleString()} more</span>` : ""}</p>
    ${value && !lines.length && html`<p>No thread was found.</p>`}
    <${Rows} count=${lines.length} row=${56} height=${Math.max(300, innerHeight - 190)} label="List of threads" draw=${(place, style) => {
      const one = lines[place], seen = one.seen || {};
      const title = one.erased ? "[erased]" : one.title || seen.prompt || one.thread;
      return html`<a key=${one.thread} class="thread" data-step style=${style} href=${`#/log/${one.log}`}><span class="title">${line(title, 120)}</span><${State} condition=${one.erased ? "erased" : one.held && seen.condition !== "approval" ? "running" : seen.condition} />
        <span class="about">${line(excerpt(one.thread) || seen.model || "", 90)}${(one.tags || []).map((tag) => html` <span class="tag">#${line(tag, 30)}</span>`)}</span>
        <span class="figures">${one.events.toLocaleString()} events${one.branches > 1 ? `, ${one.branches} branches` : ""} · ${tokens((seen.input || 0) + (seen.output || 0))} tokens · ${money(seen.cost || 0, seen.exact !== false)} · ${age(one.changed)}</span></a>`;
    }} /></section>`;
}

// One log.

function Log({ log, tab, n, live }) {
  const about = useLoaded(() => get(`api/tree/${log}`), `about ${log}`);
  const branches = about.value ? about.value.branches : [];
  const title = branches.length ? (branches.find((one) => one.title) || {}).title || Object.values(about.value.said).find(Boolean) || "" : "";
  const open = (seq, where = "talk") => go(`/log/${log}/${where}/${seq}`);
  useEffect(() => { document.title = `${TABS.find((one) => one[0] === tab)?.[1] || ""} · Evener`; }, [tab]);
  return html`<section aria-label="Thread"><div class="bar head"><h2>${line(title || log, 90)}</h2><span class="id">${log.slice(0, 12)}</span></div>
    <div class="tabs" role="tablist" aria-label="Views">${TABS.map(([name, word], place) => html`<a role="tab" aria-selected=${tab === name} href=${`#/log/${log}/${name}`} title=${`key ${place + 1}`}>${word}</a>`)}</div>
    <${Problem} text=${live.error} />
    ${tab === "talk" && html`<${Conversation} log=${log} version=${live.events} at=${n} />`}
    ${tab === "tree" && html`<${TreeView} log=${log} version=${live.events} />`}
    ${tab === "time" && html`<${Waterfall} log=${log} version=${live.events} open=${(seq) => open(seq)} />`}
    ${tab === "context" && html`<${Context} log=${log} version=${live.events} open=${(seq) => open(seq, "sent")} />`}
    ${tab === "sent" && html`<${Sent} log=${log} n=${n} version=${live.events} />`}
    ${tab === "audit" && html`<${Audit} log=${log} version=${live.events} />`}</section>`;
}

function Conversation({ log, version, at }) {
  const [state, set] = useState({ total: -1, events: 0, chunks: {} });
  const [error, fail] = useState("");
  const asked = useRef(new Set()), latest = useRef(state), busy = useRef(false), target = useRef(at);
  latest.current = state;
  const loadChunk = useCallback((place) => {
    if (asked.current.has(place)) return;
    asked.current.add(place);
    get(`api/items/${log}?start=${place * CHUNK}&many=${CHUNK}`).then((found) => {
      set((before) => ({ total: Math.max(found.total, before.total), events: before.events || found.events, chunks: { ...before.chunks, [place]: found.items } }));
    }, (problem) => { asked.current.delete(place); fail(problem.message); });
  }, [log]);
  useEffect(() => { loadChunk(0); }, [log]);
  useEffect(() => {  // what is new since
    const known = latest.current;
    if (known.total < 0 || version <= known.events || busy.current) return;
    busy.current = true;
    get(`api/items/${log}?since=${known.events}`).then((found) => set((before) => {
      const chunks = { ...before.chunks };
      const copied = new Set();
      found.items.forEach((item, order) => {
        const place = found.places[order], chunk = Math.floor(place / CHUNK);
        if (!chunks[chunk] && place % CHUNK !== 0) return;
        if (!copied.has(chunk)) { chunks[chunk] = [...(chunks[chunk] || [])]; copied.add(chunk); asked.current.add(chunk); }
        chunks[chunk][place % CHUNK] = item;
      });
      return { total: found.total, events: found.events, chunks };
    }), (problem) => fail(problem.message)).finally(() => { busy.current = false; });
  }, [version, state.events, state.total < 0]);
  useEffect(() => { target.current = at; }, [at]);
  useEffect(() => {  // find the item of an event: items are in the order of their events, so halving finds its chunk
    if (!target.current || state.total < 0) return;
    const loaded = Object.entries(state.chunks);
    const n = target.current;
    for (const [place, items] of loaded) {
      if (items[0] && items[0].n <= n && items[items.length - 1].n >= n) {
        const item = [...items].reverse().find((one) => one && one.n <= n && one.status !== "over");
        target.current = 0;
        if (item) reach(place, `i${item.key}`);
        return;
      }
    }
    if (!loaded.length) return;
    const chunks = Math.ceil(state.total / CHUNK);
    const before = loaded.filter(([, items]) => items[0] && items[items.length - 1].n < n).map(([place]) => Number(place));
    const after = loaded.filter(([, items]) => items[0] && items[0].n > n).map(([place]) => Number(place));
    const low = before.length ? Math.max(...before) + 1 : 0, high = after.length ? Math.min(...after) - 1 : chunks - 1;
    if (low <= high && high >= 0) loadChunk(Math.floor((low + high) / 2));
  }, [state, at]);
  useEffect(() => {
    const jump = (event) => event.detail === "end" ? document.getElementById("end")?.scrollIntoView() : scrollTo(0, 0);
    document.addEventListener("jump", jump);
    return () => document.removeEventListener("jump", jump);
  }, []);
  const chunks = Math.max(0, Math.ceil(state.total / CHUNK));
  return html`<div class="talk"><${Problem} text=${error} />
    ${Array.from({ length: chunks }, (_, place) => html`<${Chunk} key=${place} place=${place} many=${Math.min(CHUNK, state.total - place * CHUNK)} items=${state.chunks[place]} log=${log} load=${loadChunk} />`)}
    ${state.total >= 0 && html`<div id="end"></div><${GoOn} log=${log} />`}</div>`;
}

// Bring an item into sight. Its part of the conversation is drawn when it is near, so that comes first.
function reach(place, id, tries = 60) {
  const there = document.getElementById(id);
  if (there) { there.scrollIntoView({ block: "center" }); there.focus({ preventScroll: true }); if (tries > 5) requestAnimationFrame(() => reach(place, id, 5)); return; }
  const chunk = document.getElementById(`chunk${place}`);
  if (chunk && tries % 20 === 0) chunk.scrollIntoView();
  if (tries) requestAnimationFrame(() => reach(place, id, tries - 1));
}

// A part of a conversation. Far from the screen it is an empty box as high as it was, and it is loaded before it is seen.
function Chunk({ place, many, items, log, load }) {
  const box = useRef(null), height = useRef(many * 90);
  const [near, set] = useState(place === 0);
  useEffect(() => {
    const watch = new IntersectionObserver(([seen]) => {
      if (!seen.isIntersecting && box.current && box.current.dataset.full) height.current = box.current.offsetHeight;
      set(seen.isIntersecting);
      if (seen.isIntersecting) load(place);
    }, { rootMargin: "2500px" });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => { if (near) load(place); }, [near]);
  const full = near && items;
  return html`<div ref=${box} id=${`chunk${place}`} class="chunk" data-full=${full ? "yes" : undefined} style=${full ? {} : { height: `${height.current}px` }}>${full && items.map((item) => item && item.status !== "over" && html`<${Item} key=${item.key} item=${item} log=${log} />`)}</div>`;
}

function Item({ item, log }) {
  const title = item.kind === "call" ? item.tool : item.title || item.kind;
  const figures = [item.seconds > 0 && seconds(item.seconds), item.first > 0 && `first ${seconds(item.first)}`, item.usage && `${tokens(item.usage.input_total)} in`, item.usage && item.usage.cache_read > 0 && `${tokens(item.usage.cache_read)} cached`, item.usage && `${tokens(item.usage.output_total)} out`, item.cost && Number(item.cost) > 0 && money(item.cost, item.exact !== false)].filter(Boolean).join(" · ");
  const status = item.kind === "call" || item.kind === "decision" || (item.status && !["done", "tools"].includes(item.status)) ? item.status : "";
  return html`<article id=${`i${item.key}`} class=${`item ${item.kind} ${item.role || ""}`} tabindex="0" data-step aria-label=${`${title}, event ${item.n}`}>
    <header><b>${line(title, 120)}</b>${status && html` <span class="status">${line(status, 60)}</span>`}<span class="figures">${figures}</span>
      <span class="tools"><a class="n" href=${`#/log/${log}/audit/${item.n}`} title=${moment(item.at)}>${item.n}</a>${forkable(item) && html`<button class="quiet fork" onClick=${() => fork(log, item)} aria-label=${`Fork after event ${item.n}`}>fork</button>`}</span></header>
    ${item.erased && html`<p class="tombstone">What was said here was erased. Its place in the chain is kept.</p>`}
    ${item.kind === "setup" ? item.pieces && html`<details><summary>system prompt</summary>${item.pieces.map((piece) => html`<${Plain} text=${piece.text || ""} log=${log} n=${item.n} length=${piece.length || 0} />`)}</details>` : (item.pieces || []).map((piece) => html`<${Piece} piece=${piece} log=${log} n=${item.n} />`)}
    ${item.kind === "call" ? html`<div class="beside"><div><h4>Arguments</h4><${Plain} text=${item.arguments || "{}"} log=${log} n=${item.n} length=${0} /></div>
      <div><h4>Result</h4>${item.result ? item.result.map((piece) => html`<${Piece} piece=${piece} log=${log} n=${item.result_n} />`) : html`<p class="soft">${item.status === "running" ? "It is running." : "There is none yet."}</p>`}</div></div>` : item.arguments && html`<h4>With these arguments instead</h4><${Plain} text=${item.arguments} log=${log} n=${item.n} length=${0} />`}
    ${(item.losses || []).map((loss) => html`<p class="loss"><b>loss ${line(loss.code || loss.kind, 60)}</b> ${line(loss.what, 80)}: ${shown(loss.why)}</p>`)}
    ${(item.problems || []).map((text) => html`<p class="loss">${shown(text)}</p>`)}
    ${item.kind === "message" && item.role === "assistant" && html`<a class="sentlink" href=${`#/log/${log}/sent/${item.n - 1}`}>what was sent</a>`}
    ${item.kind === "approval" && html`<a href="#/approvals">Go to the approvals</a>`}</article>`;
}
const forkable = (item) => ["message", "call", "end", "decision", "failure"].includes(item.kind);
async function fork(log, item) {
  try {
    const made = await post("api/fork", { log, at: item.kind === "message" && item.id ? item.id : item.result_n || item.n });
    go(`/log/${made.log}`);
  } catch (error) { alert(error.message); }
}

function Piece({ piece, log, n }) {
  const text = piece.text || "";
  if (piece.kind === "reasoning") return html`<details class="reasoning"><summary>reasoning</summary><pre tabindex="0">${shown(text)}</pre></details>`;
  if (piece.kind === "image") return html`<figure class="image"><img loading="lazy" alt=${`image, ${piece.media_type || "unknown type"}`} src=${`api/media/${log}/${n}/${piece.place}`} onError=${(event) => event.target.classList.add("broken")} /><figcaption>${line(`image ${piece.media_type || ""} ${text}`, 120)}</figcaption></figure>`;
  if (piece.kind === "document") return html`<p class="soft">[document, ${line(piece.media_type || "unknown type")}${piece.length ? `, ${piece.length.toLocaleString()} bytes` : ""}] ${line(text)}</p>`;
  if (piece.kind === "hosted") return html`<div class="hosted"><b>${line(piece.place || "provider's own tool")}</b> <span class="soft">${line(piece.media_type)}</span><${Plain} text=${text} log=${log} n=${n} length=${0} /></div>`;
  const cited = (piece.citations || []).map((one) => html`<li>${line(one.title || one.url || "source")} <span class="soft">${line(one.url, 100)}</span>${one.quote && html`<blockquote>${shown(one.quote)}</blockquote>`}</li>`);
  return html`<div>${piece.markdown && piece.markdown.length ? html`<${Markdown} tree=${piece.markdown} />` : html`<${Plain} text=${text} log=${log} n=${n} length=${piece.length || 0} />`}${cited.length > 0 && html`<ol class="citations" aria-label="Citations">${cited}</ol>`}</div>`;
}

function GoOn({ log }) {
  const [prompt, setPrompt] = useState(""), [model, setModel] = useState(""), [told, tell] = useState(""), [error, fail] = useState("");
  const start = async (event, text) => {
    event.preventDefault(); fail(""); tell("");
    try {
      const made = await post("api/run", { log, prompt: text, model });
      tell(made.started ? "The run goes on." : `This viewer has no harness. Run: ${made.command.join(" ")}`);
      if (made.started) setPrompt("");
    } catch (problem) { fail(problem.message); }
  };
  return html`<form class="goon" aria-label="Go on" onSubmit=${(event) => start(event, prompt)}><label>Say something<textarea rows="2" value=${prompt} onInput=${(event) => setPrompt(event.target.value)}></textarea></label>
    <label>Model (empty: the same)<input value=${model} placeholder="provider:model" onInput=${(event) => setModel(event.target.value)} /></label>
    <div><button disabled=${!prompt.trim()}>Send</button> <button type="button" onClick=${(event) => start(event, "")}>Resume</button></div>
    ${told && html`<p role="status">${shown(told)}</p>`}<${Problem} text=${error} /></form>`;
}

// Branches.

function TreeView({ log, version }) {
  const { value, error } = useLoaded(() => get(`api/tree/${log}`), `tree ${log}`, version);
  const [a, setA] = useState(log), [b, setB] = useState("");
  if (!value) return html`<${Problem} text=${error} />`;
  const depth = {};
  for (const one of value.branches) depth[one.log] = one.parent in depth ? depth[one.parent] + 1 : 0;
  return html`<section aria-label="Tree"><ul class="tree">${value.branches.map((one) => html`<li style=${{ "margin-left": `${Math.min(depth[one.log], 12) * 20}px` }} class=${one.log === log ? "here" : ""}>
      <a data-step href=${`#/log/${one.log}`}>${one.log.slice(0, 12)}</a> ${one.parent ? `after event ${one.at}` : "the first branch"} · ${one.events} events · ${age(one.changed)}${one.head ? html` <b>head</b>` : ""}${one.log === log ? " (shown)" : ""}
      <span class="soft"> ${line(value.said[one.log], 90)}</span>
      <label><input type="radio" name="a" checked=${a === one.log} onChange=${() => setA(one.log)} />left</label> <label><input type="radio" name="b" checked=${b === one.log} onChange=${() => setB(one.log)} />right</label></li>`)}</ul>
    ${value.inside.length > 0 && html`<h3>Agents inside its calls</h3><ul class="tree">${value.inside.map((one) => html`<li><a data-step href=${`#/log/${one.log}`}>${one.thread.slice(0, 12)}</a></li>`)}</ul>`}
    ${b && a !== b && html`<${Compare} a=${a} b=${b} />`}</section>`;
}
function Compare({ a, b }) {
  const { value, error } = useLoaded(() => get(`api/diff/${a}/${b}`), `${a} ${b}`);
  if (!value) return html`<${Problem} text=${error} />`;
  const side = (messages, log) => html`<div class="side"><h3>${log.slice(0, 12)}</h3>${messages.length ? messages.map((message) => html`<article class=${`item message ${message.role}`} tabindex="0"><header><b>${message.role}</b></header>${message.pieces.map((piece) => piece.kind === "tool_call" ? html`<${Plain} text=${piece.text} length=${0} />` : html`<${Piece} piece=${{ ...piece, length: 0 }} log=${log} n=${0} />`)}</article>`) : html`<p class="soft">Nothing of its own.</p>`}</div>`;
  return html`<section aria-label="Comparison"><p>They part after event ${value.at}.</p><div class="beside">${side(value.a, a)}${side(value.b, b)}</div></section>`;
}

// What was sent.

function Sent({ log, n, version }) {
  const all = useLoaded(() => get(`api/requests/${log}`), `requests ${log}`, version);
  const [other, setOther] = useState(""), [typed, setTyped] = useState(""), [view, setView] = useState("diff");
  const requests = all.value ? all.value.requests : [];
  const chosen = requests.find((one) => one.n === n) || [...requests].reverse().find((one) => n && one.n <= n) || requests[requests.length - 1];
  const key = chosen ? `${log} ${chosen.n} ${other}` : "";
  const { value, error } = useLoaded(() => chosen ? get(`api/sent/${log}/${chosen.n}?as=${encodeURIComponent(other)}`) : Promise.resolve(null), key);
  if (!all.value) return html`<${Problem} text=${all.error} />`;
  if (!chosen) return html`<p>There is no request yet.</p>`;
  const place = requests.indexOf(chosen);
  const sent = value && value.sent;
  return html`<section aria-label="What was sent"><div class="bar">
      <button disabled=${place === 0} onClick=${() => go(`/log/${log}/sent/${requests[place - 1].n}`)} aria-label="The request before">←</button>
      <label>Request <select value=${chosen.n} onChange=${(event) => go(`/log/${log}/sent/${event.target.value}`)}>${requests.slice(Math.max(0, place - 200), place + 200).map((one) => html`<option value=${one.n}>${requests.indexOf(one) + 1}: ${one.model}</option>`)}</select></label>
      <button disabled=${place === requests.length - 1} onClick=${() => go(`/log/${log}/sent/${requests[place + 1].n}`)} aria-label="The next request">→</button>
      <form onSubmit=${(event) => { event.preventDefault(); setOther(typed.trim()); }}><label>As another model <input value=${typed} placeholder="provider:model" list="models" onInput=${(event) => setTyped(event.target.value)} /></label><button>Show</button></form>
      <datalist id="models">${["anthropic:claude-sonnet-5", "openai:gpt-5", "openai-chat:gpt-5", "google:gemini-3-pro"].map((name) => html`<option value=${name} />`)}</datalist></div>
    <${Problem} text=${error} />
    ${sent && html`<p class=${"mark " + (other ? "" : sent.exact ? "good" : "doubt")} role="status">${other ? html`As ${line(sent.model)} would get it. Nothing is sent.` : sent.exact ? html`Exact: these bytes have the SHA-256 that was recorded, ${sent.digest.slice(0, 16)}…` : shown(sent.notes.join(" "))}</p>
    <p class="soft">POST ${line(sent.url)} · ${sent.body.length.toLocaleString()} bytes</p>
    ${sent.losses.map((loss) => html`<p class="loss"><b>loss ${line(loss.code || loss.kind)}</b> ${line(loss.what)}: ${shown(loss.why)} <span class="soft">${line(loss.path || "")}</span></p>`)}
    <div class="chips" role="group" aria-label="View">${[["diff", "what changed"], ["pretty", "as a tree"], ["bytes", "bytes"]].map(([name, word]) => html`<button aria-pressed=${view === name} onClick=${() => setView(name)}>${word}</button>`)}</div>
    ${view === "pretty" ? html`<${Pretty} body=${sent.body} />` : view === "bytes" ? html`<pre class="bytes" tabindex="0">${shown(sent.body)}</pre>` : html`<${Moved} difference=${value.difference} usage=${chosen.usage} />`}`}</section>`;
}
function Pretty({ body }) {
  try { return html`<${Tree} value=${JSON.parse(body)} raw=${body} />`; } catch { return html`<pre tabindex="0">${shown(body)}</pre>`; }
}
function Moved({ difference, usage }) {
  if (!difference) return html`<p class="soft">There is no request before it to compare it with.</p>`;
  const kept = difference.bytes_before ? Math.round(difference.same_bytes / difference.bytes_before * 100) : 0;
  const read = usage && usage.input_total ? Math.round((usage.cache_read || 0) / usage.input_total * 100) : 0;
  return html`<div><p>The first ${difference.same_bytes.toLocaleString()} bytes are those of the request before: ${kept} % of it. ${usage ? `The provider read ${read} % of the input from its cache.` : ""}</p>
    <figure class="code"><pre tabindex="0">${difference.lines.map(([kind, text]) => html`<span class=${"row " + (kind === "+" ? "added" : kind === "-" ? "removed" : "")}>${kind === "=" ? " " : kind}${shown(text)}${"\n"}</span>`)}</pre></figure>${difference.cut && html`<p class="soft">Only a part is shown.</p>`}</div>`;
}

// Approvals.

function Approvals({ loaded, again }) {
  const { value, error } = loaded;
  const [done, setDone] = useState([]);
  const decided = (title, command) => { setDone([...done, { title, command }]); again(); };
  if (!value) return html`<${Problem} text=${error} />`;
  return html`<section aria-label="Approvals"><h2>Approvals</h2>
    ${done.map((one) => html`<p class="mark good" role="status">Decided: ${line(one.title, 80)}. Resume with: <code>${shown(one.command.join(" "))}</code></p>`)}${!value.waiting.length && html`<p>Nothing waits for a decision.${value.unread ? ` ${value.unread} threads are still being read.` : ""}</p>`}
    ${value.waiting.map((one) => html`<${Waiting} key=${one.log + one.asked.map((asked) => asked.approval.id).join()} one=${one} decided=${decided} />`)}</section>`;
}
function Waiting({ one, decided }) {
  const [choices, set] = useState({}), [error, fail] = useState(""), [over, end] = useState(false);
  const choice = (key) => choices[key] || { verdict: "", why: "", edit: null, result: "" };
  const change = (key, more) => set({ ...choices, [key]: { ...choice(key), ...more } });
  const ready = one.asked.every(({ key }) => choice(key).verdict);
  const send = async (event) => {
    event.preventDefault(); fail("");
    try {
      const decisions = {};
      for (const { key, approval } of one.asked) {
        const made = choice(key);
        decisions[key] = { verdict: made.verdict === "allow" ? "allow" : "reject", why: made.why, digest: approval.digest };
        if (made.edit !== null && made.verdict === "allow") decisions[key].arguments = JSON.parse(made.edit);
        if (made.verdict === "happened") decisions[key].result = made.result;
      }
      const answer = await post("api/decide", { log: one.log, decisions });
      end(true);
      decided(one.title || one.log, answer.command);
    } catch (problem) { fail(problem.message); if (/decided|changed|over/.test(problem.message)) end(true); }
  };
  return html`<form class="decide" data-step tabindex="0" aria-label=${`Approval in ${one.title || one.log}`} onSubmit=${send}><h3><a href=${`#/log/${one.log}`}>${line(one.title || one.log, 100)}</a></h3>
    ${one.asked.map(({ key, approval, answer, too_large }) => html`<fieldset disabled=${over}><legend>${approval.call ? html`<code>${exact(approval.call.name)}</code>` : approval.interrupt === "output" ? "The final answer" : "Going on"} ${approval.interrupt === "outcome" ? "was interrupted" : "needs approval"}</legend>
      ${too_large > 0 && html`<p class="problem">It has ${too_large.toLocaleString()} characters, too many for a page, and only their beginning is shown. It can be rejected here; to approve it, look at all of it with the command line.</p>`}
      ${approval.why && html`<p>${exact(approval.why)}${approval.rule && html` <span class="soft">rule ${exact(approval.rule)}</span>`}</p>`}
      ${approval.call && html`<pre class="arguments" tabindex="0" aria-label="Arguments">${exact(pretty(approval.call.raw))}</pre><${Change} raw=${approval.call.raw} edit=${choice(key).edit} />`}
      ${answer && html`<pre class="arguments" tabindex="0" aria-label="Answer">${exact(answer)}</pre>`}
      <div class="chips" role="group" aria-label="Decision">${[["allow", approval.interrupt === "outcome" ? "run it again" : "approve"], ...(approval.interrupt === "outcome" ? [["happened", "it took effect"]] : []), ["reject", approval.interrupt === "outcome" ? "unknown" : "reject"]].map(([name, word]) => html`<button type="button" disabled=${too_large > 0 && name === "allow"} aria-pressed=${choice(key).verdict === name} onClick=${() => change(key, { verdict: name })}>${word}</button>`)}
      ${approval.call && approval.interrupt === "tool" && !too_large && html`<button type="button" aria-pressed=${choice(key).edit !== null} onClick=${() => change(key, { edit: choice(key).edit === null ? pretty(approval.call.raw) : null, verdict: "allow" })}>edit</button>`}</div>
      ${choice(key).edit !== null && html`<label>New arguments<textarea rows="6" value=${choice(key).edit} onInput=${(event) => change(key, { edit: event.target.value })}></textarea></label>`}
      ${choice(key).verdict === "happened" && html`<label>Its result<input value=${choice(key).result} onInput=${(event) => change(key, { result: event.target.value })} /></label>`}
      <label>Reason<input value=${choice(key).why} onInput=${(event) => change(key, { why: event.target.value })} /></label></fieldset>`)}
    <button disabled=${!ready || over}>Decide${one.asked.length > 1 ? ` all ${one.asked.length}` : ""}</button>
    <${Problem} text=${error} /></form>`;
}
function pretty(raw) { try { return JSON.stringify(JSON.parse(raw), null, 1); } catch { return raw; } }

// What a call would change: an edit of a text as a diff, and edited arguments against those of the model.
function Change({ raw, edit }) {
  let value;
  try { value = JSON.parse(raw); } catch { return null; }
  if (!value || typeof value !== "object") return null;
  const old = value.old_string ?? value.old_text ?? value.before, fresh = value.new_string ?? value.new_text ?? value.after;
  const patch = Object.values(value).find((one) => typeof one === "string" && /^(diff --git |--- |@@ )/m.test(one));
  const rows = (kind, text) => String(text).split("\n").map((row) => html`<span class=${"row " + kind}>${kind === "added" ? "+" : "-"}${exact(row)}${"\n"}</span>`);
  return html`<div>${typeof old === "string" && typeof fresh === "string" && html`<h4>Change</h4><figure class="code"><pre tabindex="0">${rows("removed", old)}${rows("added", fresh)}</pre></figure>`}
    ${patch && html`<h4>Patch</h4><${Code} text=${patch} lang="diff" />`}
    ${edit !== null && edit !== pretty(raw) && html`<h4>Your change</h4><figure class="code"><pre tabindex="0">${rows("removed", pretty(raw))}${rows("added", edit)}</pre></figure>`}</div>`;
}

// Audit.

function Audit({ log, version }) {
  const { value, error } = useLoaded(() => get(`api/audit/${log}`), `audit ${log}`, version);
  const route = useRoute();
  const [start, set] = useState(Math.max(0, Math.floor(((route.n || 1) - 1) / 200) * 200));
  useEffect(() => { if (route.n) set(Math.floor((route.n - 1) / 200) * 200); }, [route.n]);
  const raw = useLoaded(() => get(`api/events/${log}?start=${start}`), `events ${log} ${start}`, version);
  return html`<section aria-label="Audit"><${Problem} text=${error || raw.error} />
    ${value && html`<p class=${"mark " + (value.intact ? "good" : "bad")} role="status">${value.intact ? `The chain of hashes is intact: ${value.end.seq} events, the last is ${value.end.hash.slice(0, 16)}…` : "Damage was found."}</p>
    ${value.findings.map((one) => html`<p class="loss">event ${one.seq}: ${shown(one.what)}</p>`)}`}
    <p><a href=${`export/${log}.html`} download>Export as HTML</a> · <a href=${`export/${log}.jsonl`} download>Export the thread as JSON lines</a></p>
    <h3>Events</h3>
    ${raw.value && html`<div class="bar"><button disabled=${start === 0} onClick=${() => set(start - 200)} aria-label="Earlier events">←</button><span>${start + 1} to ${start + raw.value.chosen.length} of ${raw.value.events}</span><button disabled=${start + 200 >= raw.value.events} onClick=${() => set(start + 200)} aria-label="Later events">→</button></div>
    ${raw.value.chosen.map((event, place) => html`<details class="event" data-step key=${start + place} open=${start + place + 1 === route.n}><summary><span class="n">${start + place + 1}</span> ${event.kind} <span class="soft">${moment(event.at)}</span>${JSON.stringify(event).includes('"[erased]"') && html` <span class="tombstone">erased</span>`}</summary><${Tree} value=${event} /></details>`)}`}</section>`;
}

render(html`<${App} />`, document.getElementById("app"));
