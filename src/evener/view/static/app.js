// The page: the screen that is shown, and one stream that reports which logs have grown. Nothing from a log is parsed as HTML.
import { html, render, useState, useEffect, get, useLoaded, line, money, tokens, State, Problem, TABS, go, readRoute, switchTheme, quote, shown } from "./parts.js";
import { Keys, useKeys } from "./keys.js";
import { Threads } from "./threads.js";
import { Conversation } from "./conversation.js";
import { Branches } from "./branches.js";
import { Waterfall, Context } from "./plots.js";
import { Sent } from "./sent.js";
import { Approvals } from "./approvals.js";
import { Audit } from "./audit.js";

function useRoute() {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const changed = () => set(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return readRoute(hash);
}

// One stream for the page: it reports that the shown log, or any log, has grown. A hidden page closes it.
const SILENT = { log: "", events: 0, threads: 0, waiting: 0, error: "", partial: null, on: false };
function useLive(log) {
  const [live, set] = useState(SILENT), [visible, see] = useState(!document.hidden);
  useEffect(() => {
    const changed = () => see(!document.hidden);
    document.addEventListener("visibilitychange", changed);
    return () => document.removeEventListener("visibilitychange", changed);
  }, []);
  useEffect(() => {
    if (!visible) return undefined;
    const source = new EventSource(`api/live?log=${quote(log)}`);
    source.onmessage = (event) => set({ ...JSON.parse(event.data), on: true });
    source.onerror = () => set((before) => ({ ...before, on: false }));
    return () => source.close();
  }, [log, visible]);
  return live.log === log ? live : { ...live, events: 0, error: "", partial: null };
}

function App() {
  const route = useRoute();
  const live = useLive(route.screen === "log" ? route.log : "");
  const [help, setHelp] = useState(false);
  useKeys(setHelp);
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <header><nav aria-label="Screens"><a class="brand" href="#/" aria-label="Evener"><span>Evener</span></a>
      <a href="#/" aria-current=${route.screen === "threads" ? "page" : undefined}>Threads</a>
      <a href="#/approvals" aria-current=${route.screen === "approvals" ? "page" : undefined}>Approvals${live.waiting ? html` <span class="count" aria-label=${`${live.waiting} wait`}>${live.waiting.toLocaleString()}</span>` : ""}</a>
      <span class=${"live " + (live.on ? "on" : "")} role="status">${live.on ? "live" : "not connected"}</span>
      <button class="quiet" title="Light or dark: key d" onClick=${switchTheme}>Theme</button>
      <button class="quiet" aria-expanded=${help} onClick=${() => setHelp(!help)}>Keys</button></nav></header>
    ${help && html`<${Keys} close=${() => setHelp(false)} />`}
    <main id="main" tabindex="-1">${route.screen === "log" ? html`<${Log} key=${route.log} ...${route} live=${live} />`
      : route.screen === "approvals" ? html`<${Approvals} version=${live.threads} />` : html`<${Threads} version=${live.threads} />`}</main>`;
}

// One log: its head, and one of its views.
function Log({ log, tab, n, live }) {
  const about = useLoaded(() => get(`api/tree/${quote(log)}`), `about ${log}`, live.threads);
  const { listed, said = {}, branches = [] } = about.value || {};
  const seen = listed && listed.seen;
  const title = (branches.find((one) => one.title) || {}).title || Object.values(said).find(Boolean) || "";
  const open = (seq, where = "talk") => go(`/log/${quote(log)}/${where}/${seq}`);
  useEffect(() => { document.title = `${TABS.find((one) => one[0] === tab)?.[1] || ""} · Evener`; document.querySelector("[role=tab][aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" }); }, [tab]);
  return html`<section aria-label="Thread"><div class="head"><a class="back" href="#/" aria-label="Back to the threads">←</a><h2>${line(title || log, 90)}</h2>${listed && html`<${State} ...${listed} />`}<span class="id">${seen ? html`${line(seen.model, 60)} · ${tokens((seen.input || 0) + (seen.output || 0))} tokens · ${money(seen.cost || 0, seen.exact !== false)} · ` : ""}${live.events ? `${live.events.toLocaleString()} events · ` : ""}${shown(log.slice(0, 12))}</span></div>
    <div class="tabs" role="tablist" aria-label="Views">${TABS.map(([name, word], place) => html`<a role="tab" aria-selected=${tab === name} href=${`#/log/${quote(log)}/${name}`} title=${`key ${place + 1}`}>${word}</a>`)}</div>
    <${Problem} text=${live.error} />
    ${tab === "talk" && html`<${Conversation} log=${log} version=${live.events} at=${n} partial=${live.partial} />`}
    ${tab === "tree" && html`<${Branches} log=${log} version=${live.events} />`}
    ${tab === "time" && html`<${Waterfall} log=${log} version=${live.events} open=${(seq) => open(seq)} />`}
    ${tab === "context" && html`<${Context} log=${log} version=${live.events} open=${(seq) => open(seq, "sent")} />`}
    ${tab === "sent" && html`<${Sent} log=${log} n=${n} version=${live.events} />`}
    ${tab === "audit" && html`<${Audit} log=${log} n=${n} version=${live.events} />`}</section>`;
}

render(html`<${App} />`, document.getElementById("app"));
