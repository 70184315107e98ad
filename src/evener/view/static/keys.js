// Keys: what each does, and how the focus moves. Every screen can be used without a mouse.
import { html, useEffect, go, readRoute, TABS, switchTheme, quote } from "./parts.js";

const HELP = [["t", "threads"], ["a", "approvals"], ["/", "search"], ["j k", "next, previous"], ["Enter", "open"], ["1 - 6", "the views of a thread"], ["g G", "begin, end"], ["f", "fork after the message in focus"], ["s", "what was sent for it"], ["[ ]", "earlier, later request or events"], ["c", "say something"], ["x", "compare the branch in focus"], ["d", "light or dark"], ["Esc", "leave a field, close this"], ["?", "this list"]];
export function Keys({ close }) {
  return html`<section class="keys" aria-label="Keys"><dl>${HELP.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl><button onClick=${close}>Close</button></section>`;
}
export function useKeys(setHelp) {
  useEffect(() => {
    const pressed = (event) => {
      const route = readRoute(location.hash);  // a key may arrive before the screen of a new address is rendered
      const field = event.target.closest && event.target.closest("input, textarea, select");
      if (event.key === "Escape") { if (field) field.blur(); setHelp(false); return; }
      if (field || event.ctrlKey || event.metaKey || event.altKey) return;
      const actions = {
        t: () => go("/"), a: () => go("/approvals"), "?": () => setHelp((open) => !open),
        "/": () => { const search = document.querySelector("input[type=search]"); if (search) search.focus(); else go("/"); },
        j: () => step(1), k: () => step(-1),
        g: () => document.dispatchEvent(new CustomEvent("jump", { detail: "begin" })), G: () => document.dispatchEvent(new CustomEvent("jump", { detail: "end" })),
        f: () => press("button.fork"), s: () => press("a.sentlink"), x: () => press("input[name=b]"), d: switchTheme,
        "[": () => press("[data-key='[']", document), "]": () => press("[data-key=']']", document),
        c: () => { const field = document.querySelector(".goon textarea"); if (field) { field.scrollIntoView({ block: "center" }); field.focus(); } },
      };
      const tab = route.screen === "log" && TABS[Number(event.key) - 1];
      const action = tab ? () => go(`/log/${quote(route.log)}/${tab[0]}`) : actions[event.key];
      if (action) { event.preventDefault(); action(); }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
function press(what, inside = document.activeElement && document.activeElement.closest("[data-step]")) {
  const box = inside && inside.closest ? inside.closest("li") || inside : inside;
  const found = box && box.querySelector(what);
  if (found) found.click();
}
function step(way) {
  const all = [...document.querySelectorAll("[data-step]")];
  const here = all.indexOf(document.activeElement.closest("[data-step]"));
  const next = all[here < 0 ? 0 : Math.min(Math.max(here + way, 0), all.length - 1)];
  if (next) { next.focus({ preventScroll: true }); next.scrollIntoView({ block: "nearest" }); }
}
