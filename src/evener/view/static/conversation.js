// A conversation: its items in parts of a hundred, of which only those near the screen are loaded and drawn.
import { html, memo, useState, useEffect, useRef, useCallback, get, post, go, shown, safe, line, Markdown, Plain, money, tokens, seconds, moment, Problem, Losses, quote, spell } from "./parts.js";

const CHUNK = 100;

export function Conversation({ log, version, at, partial }) {
  const [state, set] = useState({ total: -1, events: 0, chunks: {} });
  const [error, fail] = useState("");
  const asked = useRef(new Set()), latest = useRef(state), busy = useRef(false), box = useRef(null);
  latest.current = state;
  const loadChunk = useCallback((place) => {
    if (asked.current.has(place) || place < 0 || (place && place * CHUNK >= latest.current.total)) return;
    asked.current.add(place);
    get(`api/items/${quote(log)}?start=${place * CHUNK}&many=${CHUNK}`).then((found) => {
      if (found.events < latest.current.events) { asked.current.delete(place); loadChunk(place); return; }  // a newer state was loaded meanwhile
      set((before) => ({ total: Math.max(found.total, before.total), events: before.events || found.events, chunks: { ...before.chunks, [place]: found.items } }));
    }, (problem) => { asked.current.delete(place); fail(problem.message); });
  }, [log]);
  useEffect(() => { loadChunk(0); }, [log]);
  useEffect(() => {  // load what is new
    const known = latest.current;
    if (known.total < 0 || version <= known.events || busy.current) return;
    busy.current = true;
    get(`api/items/${quote(log)}?since=${known.events}&have=${Object.keys(known.chunks)}`).then((found) => {
      busy.current = false;
      set((before) => ({ total: found.total, events: found.events, chunks: merged(before.chunks, found.items) }));
    }, (problem) => { busy.current = false; fail(problem.message); });
  }, [version, state.events, state.total < 0]);
  useEffect(() => {  // bring the item of an event into sight
    if (at && state.total >= 0) get(`api/items/${quote(log)}?near=${at}`).then((found) => { const place = Math.floor(found.place / CHUNK); loadChunk(place); reach(place, `i${found.key}`); }, (problem) => fail(problem.message));
  }, [at, state.total < 0]);
  useEnd(box, () => latest.current.total >= 0);
  const chunks = Math.max(0, Math.ceil(state.total / CHUNK));
  return html`<div class="talk" ref=${box}><${Problem} text=${error} />
    ${Array.from({ length: chunks }, (_, place) => html`<${Chunk} key=${place} place=${place} many=${Math.min(CHUNK, state.total - place * CHUNK)} items=${state.chunks[place]} log=${log} load=${loadChunk} fail=${fail} />`)}
    ${partial && html`<${Typing} partial=${partial} />`}
    ${state.total >= 0 && html`<div id="end"></div><${GoOn} log=${log} />`}</div>`;
}

// Update the loaded parts with new and changed items. A part that is not loaded is loaded whole when it is near.
function merged(before, items) {
  const chunks = { ...before };
  for (const item of items) {
    const chunk = Math.floor(item.place / CHUNK);
    if (!chunks[chunk]) continue;
    if (chunks[chunk] === before[chunk]) chunks[chunk] = [...before[chunk]];
    chunks[chunk][item.place % CHUNK] = item;
  }
  return chunks;
}

// If a page shows the end, it scrolls along while the conversation grows. The keys g and G jump to the beginning and the end.
function useEnd(box, loaded) {
  useEffect(() => {
    let follows = false, last = 0;
    const down = () => scrollTo(0, document.documentElement.scrollHeight);
    const measure = () => {  // only a user scrolls up; rendering moves the end down
      const low = loaded() && innerHeight + scrollY >= document.documentElement.scrollHeight - 40;
      follows = low || (follows && scrollY >= last);
      last = scrollY;
    };
    const jump = (event) => { if (event.detail === "end") { follows = true; down(); } else scrollTo(0, 0); };
    const watch = new ResizeObserver(() => { if (follows) down(); else measure(); });
    watch.observe(box.current);
    addEventListener("scroll", measure);
    document.addEventListener("jump", jump);
    return () => { watch.disconnect(); removeEventListener("scroll", measure); document.removeEventListener("jump", jump); };
  }, []);
}

// An unfinished answer of a run that this viewer has started. The message in the log replaces it.
function Typing({ partial }) {
  return html`<article class="item message assistant typing" aria-label="The answer so far" aria-busy="true"><header><b>the model</b> <span class="status">${partial.tool ? line(`calls ${partial.tool}`, 60) : partial.text ? "writes" : "thinks"}</span></header>
    ${partial.reasoning && !partial.text && html`<pre class="reasoning">${shown(partial.reasoning)}</pre>`}<div class="plain"><pre>${shown(partial.text || "")}</pre></div></article>`;
}

// Scroll to an item. First scroll to its part of the conversation, which is rendered only when it is near.
function reach(place, id, tries = 600) {
  const there = document.getElementById(id);
  if (there) { there.scrollIntoView({ block: "center" }); there.focus({ preventScroll: true }); if (tries > 5) requestAnimationFrame(() => reach(place, id, 5)); return; }
  const chunk = document.getElementById(`chunk${place}`);
  if (chunk && tries % 20 === 0) chunk.scrollIntoView();
  if (tries) requestAnimationFrame(() => reach(place, id, tries - 1));
}

// A part of a conversation. Far from the screen it is an empty box of its last height. It is loaded before it becomes visible.
const Chunk = memo(({ place, many, items, log, load, fail }) => {
  const box = useRef(null), height = useRef(0);
  const [near, set] = useState(place === 0);
  useEffect(() => {
    const watch = new IntersectionObserver(([seen]) => {
      if (!seen.isIntersecting && box.current && box.current.dataset.full) height.current = box.current.offsetHeight;
      set(seen.isIntersecting);
      if (seen.isIntersecting) for (const other of [0, 1, -1, 2, 3]) load(place + other);  // load the neighbours early
    }, { rootMargin: "4000px" });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => { if (near) load(place); }, [near, many]);
  const full = near && items;
  return html`<div ref=${box} id=${`chunk${place}`} class="chunk" data-full=${full ? "yes" : undefined} style=${full ? {} : { height: `${height.current || many * 90}px` }}>${full && items.map((item) => item && item.status !== "over" && html`<${Item} key=${item.key} item=${item} log=${log} fail=${fail} />`)}</div>`;
});

const FINE = ["done", "tools", "allow"], WAITS = ["asked", "waits for approval", "waits inside", "running", "verifying", "waiting for the model"];
const Item = memo(({ item, log, fail }) => {
  const title = item.kind === "call" ? item.tool : item.title || item.kind;
  const figures = [item.seconds > 0 && seconds(item.seconds), item.first > 0 && `first token ${seconds(item.first)}`, item.usage && `${tokens(item.usage.input_total)} in`, item.usage && item.usage.cache_read > 0 && `${tokens(item.usage.cache_read)} cached`, item.usage && `${tokens(item.usage.output_total)} out`, item.cost && Number(item.cost) > 0 && money(item.cost, item.exact !== false)].filter(Boolean).join(" · ");
  const status = ["call", "decision", "context"].includes(item.kind) || (item.status && !["done", "tools"].includes(item.status) && item.kind !== "end") ? item.status : "";
  const tone = FINE.includes(status) ? "good" : WAITS.includes(status) ? "wait" : ["call", "decision", "failure"].includes(item.kind) || status === "failed" ? "bad" : "";
  return html`<article id=${`i${item.key}`} class=${`item ${item.kind} ${item.role || ""}`} tabindex="0" data-step aria-label=${safe(`${title}, event ${item.n}`)}>
    <header><b>${line(title, 120)}</b>${status && html` <span class=${"status " + tone}>${line(status, 60)}</span>`}<span class="figures">${figures}</span>
      <span class="tools">${forkable(item) && html`<button class="quiet fork" onClick=${() => fork(log, item).catch((problem) => fail(problem.message))} aria-label=${`Fork after event ${item.n}`}>fork here</button>`}${item.kind === "message" && item.role === "assistant" && html`<a class="sentlink" href=${`#/log/${quote(log)}/sent/${item.n - 1}`}>what was sent</a>`}<a class="n" href=${`#/log/${quote(log)}/audit/${item.n}`} title=${`event ${item.n}, ${moment(item.at)}`}>#${item.n}</a></span></header>
    ${item.erased && html`<p class="tombstone">This content was erased. The event keeps its place in the chain of hashes.</p>`}
    ${item.kind === "setup" ? item.pieces && html`<details><summary>system prompt</summary>${item.pieces.map((piece) => html`<${Plain} ...${piece} log=${log} n=${item.n} />`)}</details>` : (item.pieces || []).map((piece) => html`<${Piece} piece=${piece} log=${log} n=${item.n} />`)}
    ${item.kind === "call" ? html`<div class="beside"><div><h4>Arguments</h4><${Plain} ...${item.arguments} log=${log} n=${item.n} /></div>
      <div><h4>Result</h4>${item.result ? item.result.map((piece) => html`<${Piece} piece=${piece} log=${log} n=${item.result_n} />`) : html`<p class="soft">${item.status === "running" ? "Running." : "No result yet."}</p>`}</div></div>` : item.arguments && html`<h4>Arguments that replace the model's</h4><${Plain} ...${item.arguments} log=${log} n=${item.n} />`}
    ${item.losses && html`<${Losses} losses=${item.losses} />`}
    ${(item.problems || []).map((text) => html`<p class="loss">${shown(text)}</p>`)}
    ${item.kind === "approval" && html`<a href="#/approvals">Go to the approvals</a>`}</article>`;
});
const forkable = (item) => ["message", "call", "end", "decision", "failure"].includes(item.kind);
async function fork(log, item) {
  const made = await post("api/fork", { log, at: item.kind === "message" && item.id ? item.id : item.result_n || item.n });
  go(`/log/${quote(made.log)}`);
}

export function Piece({ piece, log, n }) {
  const text = piece.text || "";
  if (piece.kind === "reasoning") return html`<details class="reasoning"><summary>reasoning</summary><${Plain} ...${piece} log=${log} n=${n} /></details>`;
  if (piece.kind === "image") return html`<figure class="image"><img loading="lazy" alt=${safe(`image, ${piece.media_type || "unknown type"}`)} src=${`api/media/${quote(log)}/${n}/${piece.place}`} onError=${(event) => event.target.classList.add("broken")} /><figcaption>${line(`image ${piece.media_type || ""} ${text}`, 120)}</figcaption></figure>`;
  if (piece.kind === "document") return html`<p class="soft">[document, ${line(piece.media_type || "unknown type")}${piece.length ? `, ${piece.length.toLocaleString()} bytes` : ""}] ${line(text)}</p>`;
  if (piece.kind === "hosted") return html`<div class="hosted"><b>${line(piece.title || "provider's own tool")}</b> <span class="soft">${line(piece.media_type)}</span><${Plain} ...${piece} log=${log} n=${n} /></div>`;
  const cited = (piece.citations || []).map((one) => html`<li>${line(one.title || one.url || "source")} <span class="soft">${line(one.url, 100)}</span>${one.quote && html`<blockquote>${shown(one.quote)}</blockquote>`}</li>`);
  return html`<div>${piece.markdown && piece.markdown.length ? html`<${Markdown} tree=${piece.markdown} />` : html`<${Plain} ...${piece} log=${log} n=${n} />`}${cited.length > 0 && html`<h4>Sources</h4><ol class="citations" aria-label="Citations">${cited}</ol>`}</div>`;
}

function GoOn({ log }) {
  const [prompt, setPrompt] = useState(""), [model, setModel] = useState(""), [told, tell] = useState(""), [error, fail] = useState("");
  const start = async (event, text) => {
    event.preventDefault(); fail(""); tell("");
    try {
      const made = await post("api/run", { log, prompt: text, model });
      tell(made.started ? "The run continues." : `This viewer has no harness. Run: ${spell(made.command)}`);
      if (made.started) setPrompt("");
    } catch (problem) { fail(problem.message); }
  };
  return html`<form class="goon card" aria-label="Go on" onSubmit=${(event) => start(event, prompt)}><label>Say something<textarea rows="2" placeholder="The run continues from here" value=${prompt} onInput=${(event) => setPrompt(event.target.value)}></textarea></label>
    <div class="actions"><label>Model (empty: the same)<input value=${model} placeholder="provider:model" onInput=${(event) => setModel(event.target.value)} /></label>
    <button class="main" disabled=${!prompt.trim()}>Send</button> <button type="button" onClick=${(event) => start(event, "")}>Resume</button></div>
    ${told && html`<p class="mark" role="status">${shown(told)}</p>`}<${Problem} text=${error} /></form>`;
}
