// The approvals that wait in all threads. Everything is shown whole, and invisible characters as escapes.
import { html, useState, useEffect, useRef, get, post, useLoaded, shown, exact, safe, line, Code, Problem, lineDiff, quote, spell } from "./parts.js";

const keyOf = (one) => one.log + one.asked.map((asked) => asked.approval.id).join();

export function Approvals({ version }) {
  const [tick, setTick] = useState(0), [done, setDone] = useState([]);
  const { value, error } = useLoaded(() => get("api/approvals"), "approvals", `${version} ${tick}`);
  const waiting = value ? value.waiting : [];
  const known = useRef(new Map()), ours = useRef(new Set());
  useEffect(() => {  // approvals that this page showed, and that were decided elsewhere
    const now = new Map(waiting.map((one) => [keyOf(one), one]));
    const gone = value ? [...known.current].filter(([key]) => !now.has(key) && !ours.current.has(key)) : [];
    if (gone.length) setDone((before) => [...before, ...gone.map(([, one]) => ({ log: one.log, title: one.title || one.log }))]);
    if (value) known.current = now;
  }, [value]);
  const decided = (one, command) => { ours.current.add(keyOf(one)); setDone((before) => [...before, { log: one.log, title: one.title || one.log, command }]); setTick(tick + 1); };
  if (!value) return html`<section aria-label="Approvals"><${Problem} text=${error} /></section>`;
  return html`<section aria-label="Approvals" class="inbox"><h2>Approvals</h2><${Problem} text=${error} />
    ${done.map((one) => one.command ? html`<p class="mark good" role="status">Decided: ${line(one.title, 80)}. Resume with: <code>${shown(spell(one.command))}</code></p>` : html`<p class="mark" role="status"><a href=${`#/log/${quote(one.log)}`}>${line(one.title, 80)}</a> was decided elsewhere, or its run went on.</p>`)}
    ${!waiting.length && html`<div class="empty"><b>Nothing waits for a decision.</b><p>${value.unread ? `${value.unread.toLocaleString()} threads are still being read.` : "A call that needs approval, and a question of a model, appears here, whichever process it waits in."}</p></div>`}
    ${waiting.map((one) => html`<${Waiting} key=${keyOf(one)} one=${one} decided=${decided} />`)}</section>`;
}

// All approvals of one thread are decided together.
const UNDECIDED = { verdict: "", why: "", edit: null, result: "", answer: "" };
function Waiting({ one, decided }) {
  const [choices, set] = useState({}), [error, fail] = useState(""), [over, end] = useState(false);
  const choice = (key) => choices[key] || UNDECIDED;
  const change = (key, more) => set((before) => ({ ...before, [key]: { ...(before[key] || UNDECIDED), ...more } }));
  const ready = one.asked.every(({ key }) => choice(key).verdict);
  const send = async (event) => {
    event.preventDefault(); fail("");
    try {
      const decisions = one.asked.map((asked) => `${JSON.stringify(asked.key)}: ${written(asked, choice(asked.key))}`);
      const answer = await post("api/decide", `{"log": ${JSON.stringify(one.log)}, "decisions": {${decisions.join(", ")}}}`);
      end(true);
      decided(one, answer.command);
    } catch (problem) { fail(problem.message); if (/decided|changed|continued/.test(problem.message)) end(true); }
  };
  return html`<form class=${"decide" + (over ? " over" : "")} data-step tabindex="0" aria-label=${safe(`Approval in ${one.title || one.log}`)} onSubmit=${send}><h3><a href=${`#/log/${quote(one.log)}`}>${line(one.title || one.log, 100)}</a></h3>
    ${one.asked.map((asked) => html`<${asked.question ? Question : Asked} key=${asked.key} ...${asked} over=${over} choice=${choice(asked.key)} change=${(more) => change(asked.key, more)} />`)}
    <button class="main" disabled=${!ready || over}>${one.asked.every((asked) => asked.question) ? "Send" : "Decide"}${one.asked.length > 1 ? ` all ${one.asked.length}` : ""}</button>
    <${Problem} text=${error} /></form>`;
}

// A decision as JSON. Edited arguments are sent as they were typed: JavaScript would round large numbers.
function written({ approval, question }, made) {
  const decision = { verdict: made.verdict === "allow" ? "allow" : "reject", why: made.why, digest: approval.digest };
  if (made.verdict === "happened") decision.result = made.result;
  let text = made.verdict === "allow" ? made.edit : null;
  if (question && made.verdict === "allow") text = JSON.stringify({ ...JSON.parse(approval.call.raw), answer: made.answer });
  if (text !== null) JSON.parse(text);
  return text === null ? JSON.stringify(decision) : `${JSON.stringify(decision).slice(0, -1)}, "arguments": ${text}}`;
}

// A question of a model or a server: it waits for an answer, not for a permission.
function Question({ question, over, choice, change }) {
  const offered = question.choices || [];
  return html`<fieldset disabled=${over}><legend>The model asks</legend><p class="question">${exact(question.text)}</p>
    ${offered.length > 0 && html`<div class="chips" role="group" aria-label="Answers">${offered.map((text) => html`<button type="button" aria-pressed=${choice.verdict === "allow" && choice.answer === text} onClick=${() => change({ verdict: "allow", answer: text })}>${exact(text)}</button>`)}</div>`}
    <label>Answer<textarea rows="2" value=${choice.answer} onInput=${(event) => change({ verdict: event.target.value ? "allow" : "", answer: event.target.value })}></textarea></label>
    <div class="chips" role="group" aria-label="Decision"><button type="button" class="reject" aria-pressed=${choice.verdict === "reject"} onClick=${() => change({ verdict: "reject", answer: "" })}>do not answer</button></div>
    ${choice.verdict === "reject" && html`<label>Reason<input value=${choice.why} placeholder="Sent to the model" onInput=${(event) => change({ why: event.target.value })} /></label>`}</fieldset>`;
}

function Asked({ approval, answer, shown: text, too_large, over, choice, change }) {
  const { call, interrupt } = approval, interrupted = interrupt === "outcome";
  const verdicts = interrupted ? [["allow", "run it again"], ["happened", "it took effect"], ["reject", "unknown"]] : [["allow", "approve"], ["reject", "reject"]];
  return html`<fieldset disabled=${over}><legend>${call ? html`<code>${exact(call.name)}</code>` : interrupt === "output" ? "The final answer" : "Continuing"} ${interrupted ? "was interrupted" : "needs approval"}</legend>
    ${too_large > 0 && html`<p class="problem">${too_large.toLocaleString()} characters are too many for this page: only the beginning is shown. You can reject it here. To approve it, read all of it on the command line.</p>`}
    ${approval.why && html`<p>${exact(approval.why)}${approval.rule && html` <span class="soft">rule ${exact(approval.rule)}</span>`}</p>`}
    ${call && html`<pre class="arguments" tabindex="0" aria-label="Arguments">${exact(text)}</pre><${Change} raw=${call.raw} shown=${text} edit=${choice.edit} />`}
    ${answer && html`<pre class="arguments" tabindex="0" aria-label="Answer">${exact(answer)}</pre>`}
    <div class="chips" role="group" aria-label="Decision">${verdicts.map(([name, word]) => html`<button type="button" class=${name} disabled=${too_large > 0 && name === "allow"} aria-pressed=${choice.verdict === name && (name !== "allow" || choice.edit === null)} onClick=${() => change({ verdict: name, edit: null })}>${word}</button>`)}
    ${call && interrupt === "tool" && !too_large && html`<button type="button" aria-pressed=${choice.edit !== null} onClick=${() => change(choice.edit === null ? { edit: text, verdict: "allow" } : { edit: null, verdict: "" })}>edit</button>`}</div>
    ${choice.edit !== null && html`<label>New arguments<textarea rows="6" value=${choice.edit} onInput=${(event) => change({ edit: event.target.value })}></textarea></label>`}
    ${choice.verdict === "happened" && html`<label>Its result<input value=${choice.result} onInput=${(event) => change({ result: event.target.value })} /></label>`}
    <label>Reason<input value=${choice.why} placeholder="Sent to the model" onInput=${(event) => change({ why: event.target.value })} /></label></fieldset>`;
}

// What a call would change: an edit of a text as a diff, and edited arguments against those of the model.
function Change({ raw, shown, edit }) {
  let value;
  try { value = JSON.parse(raw); } catch { return null; }
  if (!value || typeof value !== "object") return null;
  const old = value.old_string ?? value.old_text ?? value.before, fresh = value.new_string ?? value.new_text ?? value.after;
  const patch = Object.values(value).find((one) => typeof one === "string" && /^(diff --git |--- |@@ )/m.test(one));
  const rows = (before, after) => lineDiff(String(before), String(after)).map(([sign, row]) => html`<span class=${"row " + (sign === "+" ? "added" : sign === "-" ? "removed" : "")}>${sign}${exact(row)}${"\n"}</span>`);
  return html`<div>${typeof old === "string" && typeof fresh === "string" && html`<h4>Change</h4><figure class="code"><pre tabindex="0">${rows(old, fresh)}</pre></figure>`}
    ${patch && html`<h4>Patch</h4><${Code} text=${patch} lang="diff" />`}
    ${edit !== null && edit !== shown && html`<h4>Your change</h4><figure class="code"><pre tabindex="0">${rows(shown, edit)}</pre></figure>`}</div>`;
}
