// The audit of a log: whether its chain of hashes is intact, and its raw events.
import { html, useState, useEffect, get, useLoaded, shown, line, Tree, moment, Problem, quote } from "./parts.js";

export function Audit({ log, n, version }) {
  const { value, error } = useLoaded(() => get(`api/audit/${quote(log)}`), `audit ${log}`, version);
  const [start, set] = useState(Math.max(0, Math.floor(((n || 1) - 1) / 200) * 200));
  useEffect(() => { if (n) set(Math.floor((n - 1) / 200) * 200); }, [n]);
  const raw = useLoaded(() => get(`api/events/${quote(log)}?start=${start}`), `events ${log} ${start}`, version);
  return html`<section aria-label="Audit"><${Problem} text=${error || raw.error} />
    ${value && html`<p class=${"mark " + (value.intact ? "good" : "bad")} role="status">${value.intact ? `The chain of hashes is intact: ${value.end.seq} events, the last is ${value.end.hash.slice(0, 16)}…` : "Damage was found."}</p>
    ${value.findings.map((one) => html`<p class="loss">event ${one.seq}: ${shown(one.what)}</p>`)}`}
    <p><a href=${`export/${quote(log)}.html`} download>Export as HTML</a> · <a href=${`export/${quote(log)}.jsonl`} download>Export the thread as JSON lines</a></p>
    <div class="card"><h3>Events</h3>
    ${raw.value && html`<div class="bar">${raw.value.events > 200 && html`<button disabled=${start === 0} onClick=${() => set(start - 200)} data-key="[" aria-label="Earlier events">←</button>`}<span class="soft">${start + 1} to ${start + raw.value.chosen.length} of ${raw.value.events}</span>${raw.value.events > 200 && html`<button disabled=${start + 200 >= raw.value.events} onClick=${() => set(start + 200)} data-key="]" aria-label="Later events">→</button>`}</div>
    ${raw.value.chosen.map((event, place) => html`<details class="event" data-step key=${start + place} open=${start + place + 1 === n}><summary><span class="n">${start + place + 1}</span> <span class="kind">${line(event.kind, 40)}</span> <span class="soft">${moment(event.at)}</span>${JSON.stringify(event).includes('"[erased]"') && html` <span class="tombstone">erased</span>`}</summary><${Tree} value=${event} /></details>`)}`}</div></section>`;
}
