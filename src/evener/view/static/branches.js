// The branches of a thread: forks, rollbacks, compactions and agents inside calls; two of them side by side.
import { html, useState, get, useLoaded, line, Plain, tokens, age, Problem, quote, shown } from "./parts.js";
import { Piece } from "./conversation.js";

export function Branches({ log, version }) {
  const { value, error } = useLoaded(() => get(`api/tree/${quote(log)}?marks=1`), `tree ${log}`, version);
  const [a, setA] = useState(log), [b, setB] = useState("");
  if (!value) return html`<${Problem} text=${error} />`;
  const depth = {};
  for (const one of value.branches) depth[one.log] = one.parent in depth ? depth[one.parent] + 1 : 0;
  const pick = (name, chosen, set, one) => html`<label><input type="radio" name=${name} checked=${chosen === one.log} onChange=${() => set(one.log)} />${name === "a" ? "left" : "right"}</label>`;
  return html`<section aria-label="Tree"><p class="soft">A fork shares the past of its parent. A rollback moves the head to another branch; nothing is deleted. Choose two branches to compare them.</p>
    <ul class="tree">${value.branches.map((one) => html`<li style=${{ "margin-left": `${Math.min(depth[one.log], 12) * 28}px` }} class=${one.log === log ? "here" : ""}>
      <span><a data-step href=${`#/log/${quote(one.log)}`}>${line(value.said[one.log] || one.log.slice(0, 12), 90)}</a>${one.head ? html` <span class="status good">head</span>` : ""}${one.log === log ? html` <span class="status">shown</span>` : ""}</span>
      <span class="pick">${pick("a", a, setA, one)}${pick("b", b, setB, one)}</span>
      <span class="soft">${shown(one.log.slice(0, 12))} · ${one.parent ? `forked after event ${one.at}` : "the first branch"} · ${one.events.toLocaleString()} events · ${age(one.changed)}</span>
      ${(value.marks[one.log] || []).length > 0 && html`<span class="marks">${value.marks[one.log].map((mark) => html`<a href=${`#/log/${quote(one.log)}/talk/${mark.n}`}>${mark.kind} at event ${mark.n}: ${tokens(mark.saved)} of ${tokens(mark.tokens)} tokens</a>`)}</span>`}</li>`)}</ul>
    ${value.inside.length > 0 && html`<h3>Agents inside its calls</h3><ul class="tree">${value.inside.map((one) => html`<li><span><a data-step href=${`#/log/${quote(one.log)}`}>${line(one.said || one.thread.slice(0, 12), 90)}</a></span><span class="soft">${shown(one.thread.slice(0, 12))}</span></li>`)}</ul>`}
    ${b && a !== b && html`<${Compare} a=${a} b=${b} said=${value.said} />`}</section>`;
}
function Compare({ a, b, said }) {
  const { value, error } = useLoaded(() => get(`api/diff/${quote(a)}/${quote(b)}`), `${a} ${b}`);
  if (!value) return html`<${Problem} text=${error} />`;
  const side = (messages, log) => html`<div class="side"><h3>${line(said[log], 60)} <span class="soft">${shown(log.slice(0, 12))}</span></h3>${messages.length ? messages.map((message) => html`<article class=${`item message ${message.role}`} tabindex="0"><header><b>${message.role}</b></header>${message.pieces.map((piece) => piece.kind === "tool_call" ? html`<${Plain} text=${piece.text} />` : html`<${Piece} piece=${{ ...piece, length: 0 }} log=${log} n=${0} />`)}</article>`) : html`<p class="soft">Nothing of its own.</p>`}</div>`;
  return html`<section class="parted" aria-label="Comparison"><h3>The branches differ after event ${value.at}</h3><div class="beside even">${side(value.a, a)}${side(value.b, b)}</div></section>`;
}
