// Charts of a log: the waterfall of its spans, its context and its cost, as plain SVG and rows of one height.
import { html, useState, useRef, useEffect, useMemo, get, useLoaded, line, safe, seconds, money, tokens, moment, Problem, quote } from "./parts.js";

const ROW = 26;

// Rows of one height. Only the visible ones are rendered.
export function Rows({ count, label, draw, look, height = 480, row = ROW, role = "region" }) {
  const [top, set] = useState(0);
  const box = useRef(null);
  const tall = Math.min(height, count * row + 2);
  const first = Math.max(0, Math.floor(top / row) - 10);
  const last = Math.min(count, first + Math.ceil(tall / row) + 20);
  useEffect(() => { if (look) look(first, last); });
  const rows = [];
  for (let place = first; place < last; place += 1) rows.push(draw(place, { top: `${place * row}px`, height: `${row}px` }));
  return html`<div class="rows" ref=${box} tabindex="0" role=${role} aria-label=${label} style=${{ height: `${tall}px` }} onScroll=${() => set(box.current.scrollTop)}>
    <div class="space" style=${{ height: `${count * row}px` }}>${rows}</div></div>`;
}

export function Waterfall({ log, version, open }) {
  const { value, error } = useLoaded(() => get(`api/spans/${quote(log)}`), `spans ${log}`, version);
  const [run, choose] = useState("");
  const spans = value ? value.spans : [];
  const runs = useMemo(() => spans.filter((span) => span.kind === "agent"), [spans]);
  const chosen = runs.find((one) => one.span === run) || runs[runs.length - 1];
  const inside = useMemo(() => chosen ? spans.filter((span) => span.span === chosen.span || span.parent === chosen.span) : spans, [spans, chosen]);
  if (!value) return html`<${Problem} text=${error} />`;
  if (!inside.length) return html`<div class="empty"><b>There is no run yet.</b><p>Requests, calls, waits and retries are shown here on one line of time.</p></div>`;
  const start = inside[0].start;
  const until = (span) => span.end || value.last;
  const whole = Math.max(inside.reduce((latest, span) => Math.max(latest, until(span)), start) - start, 0.001);
  return html`<section aria-label="Waterfall">
    <div class="bar"><label>Run <select value=${chosen ? chosen.span : ""} onChange=${(event) => choose(event.target.value)}>
      ${runs.map((one, place) => html`<option value=${one.span}>${place + 1}: ${moment(one.start)} ${safe((one.attributes || {})["evener.stop"] || "open", 40)}</option>`)}</select></label>
      <span class="soft">${inside.length} spans, ${seconds(whole)}</span>
      <span class="legend">${[["agent", "run"], ["model", "request"], ["tool", "call"], ["approval", "wait"], ["retry", "retry"], ["compaction", "compaction"], ["failed", "failed"]].map(([name, word]) => html`<span><i class=${name}></i>${word}</span>`)}</span></div>
    <div class="axis" aria-hidden="true"><span class="name"></span><span class="ticks">${[0, 0.25, 0.5, 0.75, 1].map((part) => html`<span>${part ? seconds(whole * part) : "0"}</span>`)}</span><span class="end"></span></div>
    <${Rows} count=${inside.length} row=${30} height=${Math.max(320, innerHeight - 300)} label="Spans" draw=${(place, style) => {
      const span = inside[place], told = span.attributes || {}, lasted = until(span) - span.start;
      const from = Math.min((span.start - start) / whole * 100, 99.7), wide = Math.min(Math.max(lasted / whole * 100, 0.3), 100 - from);
      const first = told["gen_ai.response.time_to_first_chunk"];
      const used = told["gen_ai.usage.input_tokens"] !== undefined ? `${tokens(told["gen_ai.usage.input_tokens"])} in, ${tokens(told["gen_ai.usage.output_tokens"])} out` : "";
      const more = span.error || used || told["evener.approval.verdict"] || told["evener.outcome"] || "";
      const text = `${span.name}, ${seconds(lasted)}${more ? `, ${more}` : ""}${span.end ? "" : ", open"}`;
      return html`<button key=${span.span} class="span" data-step style=${style} title=${safe(text)} aria-label=${safe(text)} onClick=${() => open(span.seq)}>
        <span class=${"name" + (span.parent && span !== inside[0] ? " inner" : "")}>${line(span.name.replace(/^(execute_tool|invoke_agent|chat) /, ""), 60)}</span><span class="track"><span class=${`block ${span.kind} ${span.error ? "bad" : ""} ${span.end ? "" : "open"}`} style=${{ left: `${from}%`, width: `${wide}%` }}></span>${first > 0 && lasted > 0 && html`<span class="first" style=${{ left: `${from + Math.min(first / lasted, 1) * wide}%` }}></span>`}</span>
        <span class="time">${seconds(lasted)}</span><span class=${"more" + (span.error ? " bad" : "")}>${line(more, 40)}</span></button>`;
    }} /></section>`;
}

const KINDS = ["system", "tools", "user", "assistant", "reasoning", "calls", "results", "media"];
const BUCKETS = 240;

function bucketed(requests) {
  const size = Math.ceil(requests.length / BUCKETS) || 1;
  const found = [];
  for (let place = 0; place < requests.length; place += size) {
    const several = requests.slice(place, place + size);
    found.push({ place, top: several.reduce((best, one) => total(one) > total(best) ? one : best, several[0]), cut: several.map((one) => one.shortened).find(Boolean) });
  }
  return found;
}
const kinds = (one) => one.kinds || {};
const total = (one) => Object.values(kinds(one)).reduce((sum, count) => sum + count, 0);
const Tile = ({ value, word }) => html`<div class="tile"><b>${value}</b><span>${word}</span></div>`;

export function Context({ log, version, open }) {
  const { value, error } = useLoaded(() => get(`api/requests/${quote(log)}`), `requests ${log}`, version);
  if (!value) return html`<${Problem} text=${error} />`;
  const requests = value.requests;
  if (!requests.length) return html`<div class="empty"><b>There is no request yet.</b><p>What each request holds is shown here, against the window of its model.</p></div>`;
  let spent = 0, read = 0, input = 0, output = 0;
  for (const one of requests) { const used = one.usage || {}; read += used.cache_read || 0; input += used.input_total || 0; output += used.output_total || 0; }
  const costs = requests.map((one) => (spent += Number(one.cost || 0)));
  const reads = requests.filter((one) => one.usage && one.usage.input_total).map((one) => (one.usage.cache_read || 0) / one.usage.input_total);
  return html`<section aria-label="Context">
    <div class="tiles"><${Tile} value=${requests.length.toLocaleString()} word="requests" /><${Tile} value=${tokens(input)} word="tokens in" /><${Tile} value=${`${input ? Math.round(read / input * 100) : 0} %`} word="read from the cache" /><${Tile} value=${tokens(output)} word="tokens out" /><${Tile} value=${money(spent)} word="for these requests" /></div>
    <${Stacked} requests=${requests} open=${open} />
    <div class="two"><${Curve} label="Cost" points=${costs} last=${money(spent)} show=${(one) => money(one)} /><${Curve} label="Read from the cache" points=${reads} most=${1} last=${`${Math.round((reads[reads.length - 1] || 0) * 100)} % of the last request`} show=${(one) => `${Math.round(one * 100)} %`} /></div>
    <h3>Requests</h3>
    <${Rows} count=${requests.length} label="Requests" row=${32} height=${420} draw=${(place, style) => {
      const one = requests[place], used = one.usage || {};
      const text = `Request ${place + 1}: ${one.error || one.stop}`;
      return html`<button key=${one.n} class="request" data-step style=${style} aria-label=${safe(text)} onClick=${() => open(one.n)}><span>${place + 1}</span><span class="name">${line(one.model, 40)}</span><span>${tokens(used.input_total)} in</span><span>${tokens(used.cache_read)} cached</span><span>${tokens(used.output_total)} out</span><span>${seconds(one.seconds || 0)}</span><span>${money(one.cost || 0)}</span><span class=${"stop" + (one.error ? " bad" : "")}>${line(one.error || one.stop, 20)}${one.losses ? ` · ${one.losses} losses` : ""}</span></button>`;
    }} /></section>`;
}

// Round up to 1, 2, 2.5 or 5 times a power of ten.
const roundUp = (count) => { const power = 10 ** Math.floor(Math.log10(count)); return [1, 2, 2.5, 5, 10].find((part) => part * power >= count) * power; };

// The tokens of each request by kind, stacked, against the window of its model. A line across a column marks how much of it was read from the cache.
function Stacked({ requests, open }) {
  const columns = bucketed(requests);
  const window = requests.reduce((most, one) => Math.max(most, one.window || 0), 0);
  const highest = columns.reduce((most, one) => Math.max(most, total(one.top)), 1);
  const top = window && highest > window / 8 ? Math.max(window, highest) * 1.04 : highest * 1.08;
  const tick = roundUp(top / 4), scale = tick * Math.ceil(top / tick);
  const names = KINDS.filter((name) => columns.some((one) => kinds(one.top)[name]));
  const wide = innerWidth < 760 ? 400 : 900, tall = 230, left = 44, each = (wide - left) / columns.length, gap = each > 24 ? 6 : each > 4 ? 1 : 0;
  const y = (count) => tall - count / scale * tall;
  return html`<div class="card"><div class="bar"><h3>Context by kind</h3><span class="legend">${names.map((name) => html`<span><i class=${"k" + KINDS.indexOf(name)}></i>${name}</span>`)}<span><i class="read"></i>cache read up to here</span>${window > 0 && html`<span><i class="window"></i>window: ${tokens(window)} tokens${scale < window ? ", above this plot" : ""}</span>`}</span></div>
    <svg viewBox=${`0 -8 ${wide} ${tall + 14}`} role="img" aria-label=${`Tokens of ${requests.length} requests; the largest has ${highest.toLocaleString()}`}>
      ${Array.from({ length: Math.round(scale / tick) }, (_, n) => (n + 1) * tick).map((count) => html`<line class="grid" x1=${left} x2=${wide} y1=${y(count)} y2=${y(count)} /><text x=${left - 6} y=${y(count) + 4} text-anchor="end">${count >= 1000 ? `${count / 1000}k` : count}</text>`)}
      <line class="grid" x1=${left} x2=${wide} y1=${tall} y2=${tall} />
      ${columns.map((column, place) => {
        const x = left + place * each + gap / 2, width = Math.max(each - gap, 0.5), used = column.top.usage || {};
        let base = 0;
        const parts = names.map((name) => { const count = kinds(column.top)[name] || 0; base += count; return count > 0 ? html`<rect class=${"k" + KINDS.indexOf(name)} x=${x} y=${y(base)} width=${width} height=${count / scale * tall}></rect>` : null; });
        const said = names.map((name) => kinds(column.top)[name] ? `${name} ${tokens(kinds(column.top)[name])}` : "").filter(Boolean).join(", ");
        return html`<g class="column" onClick=${() => open(column.top.n)}>${parts}${used.cache_read > 0 && html`<line class="read-line" x1=${x} x2=${x + width} y1=${y(used.cache_read)} y2=${y(used.cache_read)} />`}${column.cut && html`<path class="cut" d=${`M${x + width / 2 - 5},${tall + 6}h10l-5,-7z`} />`}
          <title>request ${column.place + 1}: ${total(column.top).toLocaleString()} tokens (${said}), ${(used.cache_read || 0).toLocaleString()} from the cache${column.cut ? `, ${column.cut} before it` : ""}</title></g>`;
      })}
      ${window > 0 && scale >= window && html`<line class="window" x1=${left} x2=${wide} y1=${y(window)} y2=${y(window)} />`}
    </svg></div>`;
}

function Curve({ label, points, most, last, show }) {
  const wide = innerWidth < 760 ? 360 : 560, tall = 90, top = most || Math.max(points[points.length - 1] || 0, 1e-9);
  const step = Math.max(1, Math.floor(points.length / 400));
  const path = points.filter((_, place) => place % step === 0 || place === points.length - 1)
    .map((value, place, all) => `${(all.length > 1 ? place / (all.length - 1) : 0) * wide},${tall - Math.min(value / top, 1) * (tall - 4) - 2}`).join("L");
  return html`<figure class="card"><figcaption>${label}: <b>${last}</b></figcaption><svg viewBox=${`0 0 ${wide} ${tall}`} role="img" aria-label=${`${label}: ${last}`}>
    <line class="grid" x1="0" x2=${wide} y1=${tall} y2=${tall} />${points.length > 1 && html`<path class="area" d=${`M${path}L${wide},${tall}L0,${tall}Z`} /><path class="curve" d=${`M${path}`} />`}<text x="4" y="11">${show(top)}</text></svg></figure>`;
}
