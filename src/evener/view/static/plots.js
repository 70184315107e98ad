// Pictures of a log: the waterfall of its spans, its context and its cost, drawn with plain SVG and rows of one height.
import { html, useState, useRef, useEffect, useMemo, get, useLoaded, line, seconds, money, tokens, moment, Problem } from "./parts.js";

const ROW = 26;

// Rows of one height, of which only those in sight are drawn.
export function Rows({ count, label, draw, height = 480, row = ROW, role = "region" }) {
  const [top, set] = useState(0);
  const box = useRef(null);
  const tall = Math.min(height, count * row + 2);
  const first = Math.max(0, Math.floor(top / row) - 10);
  const last = Math.min(count, first + Math.ceil(tall / row) + 20);
  const rows = [];
  for (let place = first; place < last; place += 1) rows.push(draw(place, { top: `${place * row}px`, height: `${row}px` }));
  return html`<div class="rows" ref=${box} tabindex="0" role=${role} aria-label=${label} style=${{ height: `${tall}px` }} onScroll=${() => set(box.current.scrollTop)}>
    <div class="space" style=${{ height: `${count * row}px` }}>${rows}</div></div>`;
}

export function Waterfall({ log, version, open }) {
  const { value, error } = useLoaded(() => get(`api/spans/${log}`), `spans ${log}`, version);
  const [run, choose] = useState("");
  const spans = value ? value.spans : [];
  const runs = useMemo(() => spans.filter((span) => span.kind === "agent"), [spans]);
  const chosen = runs.find((one) => one.span === run) || runs[runs.length - 1];
  const inside = useMemo(() => chosen ? spans.filter((span) => span.span === chosen.span || span.parent === chosen.span) : spans, [spans, chosen]);
  if (!value) return html`<${Problem} text=${error} />`;
  if (!inside.length) return html`<p>There is no run yet.</p>`;
  const start = Math.min(...[inside[0].start]);
  const ends = inside.map((span) => span.end || value.last);
  let end = start;
  for (const one of ends) if (one > end) end = one;
  const whole = Math.max(end - start, 0.001);
  return html`<section aria-label="Waterfall">
    <div class="bar"><label>Run <select value=${chosen ? chosen.span : ""} onChange=${(event) => choose(event.target.value)}>
      ${runs.map((one, place) => html`<option value=${one.span}>${place + 1}: ${moment(one.start)} ${(one.attributes || {})["evener.stop"] || "open"}</option>`)}</select></label>
      <span>${inside.length} spans, ${seconds(whole)}</span>
      <span class="legend"><i class="agent"></i>run <i class="model"></i>request <i class="tool"></i>call <i class="approval"></i>wait <i class="retry"></i>retry</span></div>
    <${Rows} count=${inside.length} label="Spans" draw=${(place, style) => {
      const span = inside[place];
      const from = (span.start - start) / whole * 100, wide = Math.max(((span.end || value.last) - span.start) / whole * 100, 0.3);
      const text = `${span.name}, ${seconds((span.end || value.last) - span.start)}${span.error ? `, ${span.error}` : ""}${span.end ? "" : ", open"}`;
      return html`<button key=${span.span} class="span" style=${style} title=${text} aria-label=${text} onClick=${() => open(span.seq)}>
        <span class="name">${line(span.name, 60)}</span><span class="track"><span class=${`block ${span.kind} ${span.error ? "bad" : ""}`} style=${{ left: `${Math.min(from, 99.7)}%`, width: `${Math.min(wide, 100 - from)}%` }}></span></span>
        <span class="time">${seconds((span.end || value.last) - span.start)}</span></button>`;
    }} /></section>`;
}

const KINDS = ["cache read", "cache write", "uncached", "output"];
const BUCKETS = 240;

function bucketed(requests) {
  const size = Math.ceil(requests.length / BUCKETS) || 1;
  const found = [];
  for (let place = 0; place < requests.length; place += size) {
    const several = requests.slice(place, place + size);
    found.push({ place, many: several.length, top: several.reduce((best, one) => total(one) > total(best) ? one : best, several[0]) });
  }
  return found;
}
const kinds = (one) => one.kinds || {};
const total = (one) => Object.values(kinds(one)).reduce((sum, count) => sum + count, 0);

export function Context({ log, version, open }) {
  const { value, error } = useLoaded(() => get(`api/requests/${log}`), `requests ${log}`, version);
  if (!value) return html`<${Problem} text=${error} />`;
  const requests = value.requests;
  if (!requests.length) return html`<p>There is no request yet.</p>`;
  const columns = bucketed(requests);
  const window = requests.reduce((most, one) => Math.max(most, one.window || 0), 0);
  const highest = columns.reduce((most, one) => Math.max(most, total(one.top)), 1);
  const scale = window && highest > window / 20 ? Math.max(window, highest) : highest * 1.15;
  const names = [...KINDS, ...new Set(columns.flatMap((one) => Object.keys(kinds(one.top))).filter((name) => !KINDS.includes(name)))];
  let spent = 0;
  const costs = requests.map((one) => (spent += Number(one.cost || 0)));
  const reads = requests.map((one) => one.usage && one.usage.input_total ? (one.usage.cache_read || 0) / one.usage.input_total : 0);
  const wide = 900, tall = 220, each = wide / columns.length;
  return html`<section aria-label="Context">
    <div class="bar"><h3>Context by kind</h3><span class="legend">${names.map((name, place) => html`<i class=${"k" + place}></i>${name} `)}${window > 0 && html`<i class="window"></i>window (${tokens(window)} tokens${scale < window ? ", above this plot" : ""})`}</span></div>
    <svg viewBox=${`0 0 ${wide} ${tall}`} role="img" aria-label=${`Tokens of ${requests.length} requests; the largest has ${highest.toLocaleString()}`}>
      ${columns.map((column, place) => {
        let base = tall;
        return html`<g class="column" onClick=${() => open(column.top.n)}>${names.map((name, kind) => {
          const height = (kinds(column.top)[name] || 0) / scale * tall;
          base -= height;
          return height > 0 ? html`<rect class=${"k" + kind} x=${place * each} y=${base} width=${Math.max(each - (each > 4 ? 1 : 0), 0.5)} height=${height}></rect>` : null;
        })}<title>request ${column.place + 1}: ${total(column.top).toLocaleString()} tokens, ${column.top.model}</title></g>`;
      })}
      ${window > 0 && scale >= window && html`<line class="window" x1="0" x2=${wide} y1=${tall - window / scale * tall} y2=${tall - window / scale * tall} />`}
    </svg>
    <div class="two"><${Curve} label="Cost" points=${costs} last=${money(spent)} /><${Curve} label="Read from the cache" points=${reads} most=${1} last=${`${Math.round((reads[reads.length - 1] || 0) * 100)} % of the last request`} /></div>
    <h3>Requests</h3>
    <${Rows} count=${requests.length} label="Requests" height=${320} draw=${(place, style) => {
      const one = requests[place], usage = one.usage || {};
      const text = `Request ${place + 1}: ${one.error || one.stop}`;
      return html`<button key=${one.n} class="request" style=${style} aria-label=${text} onClick=${() => open(one.n)}><span>${place + 1}</span><span class="name">${line(one.model, 40)}</span><span>${tokens(usage.input_total)} in</span><span>${tokens(usage.cache_read)} cached</span><span>${tokens(usage.output_total)} out</span><span>${seconds(one.seconds || 0)}</span><span>${money(one.cost || 0)}</span><span class=${one.error ? "bad" : ""}>${line(one.error || one.stop, 20)}${one.losses ? ` · ${one.losses} losses` : ""}</span></button>`;
    }} /></section>`;
}

function Curve({ label, points, most, last }) {
  const wide = 440, tall = 90, top = most || Math.max(...[points[points.length - 1] || 0, 1e-9]);
  const step = Math.max(1, Math.floor(points.length / 400));
  const path = points.filter((_, place) => place % step === 0 || place === points.length - 1)
    .map((value, place, all) => `${place ? "L" : "M"}${(all.length > 1 ? place / (all.length - 1) : 0) * wide},${tall - Math.min(value / top, 1) * (tall - 4) - 2}`).join("");
  return html`<figure><figcaption>${label}: <b>${last}</b></figcaption><svg viewBox=${`0 0 ${wide} ${tall}`} role="img" aria-label=${`${label}: ${last}`}><path class="curve" d=${path} /></svg></figure>`;
}
