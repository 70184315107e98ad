// The sent request: its bytes, its differences from the previous request, and the same request for another model.
import { html, useState, get, go, useLoaded, shown, safe, line, Tree, Problem, Losses, quote } from "./parts.js";

export function Sent({ log, n, version }) {
  const all = useLoaded(() => get(`api/requests/${quote(log)}`), `requests ${log}`, version);
  const [other, setOther] = useState(""), [typed, setTyped] = useState(""), [view, setView] = useState("diff");
  const requests = all.value ? all.value.requests : [];
  const chosen = requests.find((one) => one.n === n) || [...requests].reverse().find((one) => n && one.n <= n) || requests[requests.length - 1];
  const key = chosen ? `${log} ${chosen.n} ${other}` : "";
  const { value, error } = useLoaded(() => chosen ? get(`api/sent/${quote(log)}/${chosen.n}?as=${encodeURIComponent(other)}`) : Promise.resolve(null), key);
  if (!all.value) return html`<${Problem} text=${all.error} />`;
  if (!chosen) return html`<div class="empty"><b>There is no request yet.</b><p>The bytes of each request to a model are shown here.</p></div>`;
  const place = requests.indexOf(chosen);
  const sent = value && value.sent;
  return html`<section aria-label="What was sent"><div class="bar">
      <button disabled=${place === 0} onClick=${() => go(`/log/${quote(log)}/sent/${requests[place - 1].n}`)} data-key="[" aria-label="The request before">←</button>
      <label>Request <select value=${chosen.n} onChange=${(event) => go(`/log/${quote(log)}/sent/${event.target.value}`)}>${requests.slice(Math.max(0, place - 200), place + 200).map((one) => html`<option value=${one.n}>${requests.indexOf(one) + 1}: ${safe(one.model, 60)}</option>`)}</select></label>
      <button disabled=${place === requests.length - 1} onClick=${() => go(`/log/${quote(log)}/sent/${requests[place + 1].n}`)} data-key="]" aria-label="The next request">→</button>
      <form class="as" onSubmit=${(event) => { event.preventDefault(); setOther(typed.trim()); }}><label>As another model <input value=${typed} placeholder="provider:model" list="models" onInput=${(event) => setTyped(event.target.value)} /></label><button>Show</button></form>
      <datalist id="models">${["anthropic:claude-sonnet-5", "openai:gpt-5", "openai-chat:gpt-5", "google:gemini-3-pro"].map((name) => html`<option value=${name} />`)}</datalist></div>
    <${Problem} text=${error} />
    ${value && value.problem && html`<div class="empty"><b>This request cannot be rebuilt here.</b><p>${shown(value.problem)}</p></div>`}
    ${sent && html`<p class=${"mark " + (other ? "" : sent.exact ? "good" : "doubt")} role="status">${other ? html`As ${line(sent.model)} would get it. Nothing is sent.` : sent.exact ? html`Exact: these bytes have the SHA-256 that was recorded, ${sent.digest.slice(0, 16)}…` : shown(sent.notes.join(" "))}</p>
    <p class="soft">POST ${line(sent.url)} · ${sent.body.length.toLocaleString()} bytes</p>
    <${Losses} losses=${sent.losses} />
    <div class="chips views" role="group" aria-label="View">${[["diff", "what changed"], ["pretty", "as a tree"], ["bytes", "bytes"]].map(([name, word]) => html`<button aria-pressed=${view === name} onClick=${() => setView(name)}>${word}</button>`)}</div>
    ${view === "pretty" ? html`<${Pretty} body=${sent.body} />` : view === "bytes" ? html`<pre class="bytes" tabindex="0">${shown(sent.body)}</pre>` : html`<${Moved} difference=${value.difference} usage=${chosen.usage} />`}`}</section>`;
}
function Pretty({ body }) {
  try { return html`<${Tree} value=${JSON.parse(body)} raw=${body} />`; } catch { return html`<pre tabindex="0">${shown(body)}</pre>`; }
}
function Moved({ difference, usage }) {
  if (!difference) return html`<p class="soft">There is no request before it to compare it with.</p>`;
  const kept = difference.bytes_before ? Math.round(difference.same_bytes / difference.bytes_before * 100) : 0;
  const read = usage && usage.input_total ? Math.round((usage.cache_read || 0) / usage.input_total * 100) : 0;
  return html`<div><div class="tiles"><div class="tile"><b>${kept} %</b><span>of the request before is its beginning (${difference.same_bytes.toLocaleString()} bytes)</span></div>${usage ? html`<div class="tile"><b>${read} %</b><span>of the input was read from the cache</span></div>` : ""}</div>
    <ul class="soft">${(difference.why || []).map((text) => html`<li>${shown(text)}</li>`)}</ul>
    <figure class="code"><pre tabindex="0">${difference.lines.map(([kind, text]) => html`<span class=${"row " + (kind === "+" ? "added" : kind === "-" ? "removed" : "")}>${kind === "=" ? " " : kind}${shown(text)}${"\n"}</span>`)}</pre></figure>${difference.cut && html`<p class="soft">Only a part is shown.</p>`}</div>`;
}
