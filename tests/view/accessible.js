() => {
  const wrong = [];
  const seen = (one) => { const box = one.getBoundingClientRect(); const style = getComputedStyle(one); return box.width > 1 && box.height > 1 && style.visibility !== "hidden"; };
  const named = (one) => (one.getAttribute("aria-label") || one.title || one.textContent || one.alt || "").trim() || (one.labels && [...one.labels].some((label) => label.textContent.trim()));
  for (const one of document.querySelectorAll("button, a[href], input, select, textarea, img, [role=img], [role=region], [tabindex='0']")) {
    if (seen(one) && !named(one)) wrong.push(`no name: ${one.outerHTML.slice(0, 120)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) wrong.push(`the id ${id} is used twice`);
  const number = (text) => { const found = text.match(/[\d.]+/g).map(Number); return found.length > 3 ? found : [...found, 1]; };
  const light = ([r, g, b]) => { const part = (one) => { const value = one / 255; return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; }; return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
  const behind = (one) => { for (let at = one; at; at = at.parentElement) { const color = number(getComputedStyle(at).backgroundColor); if (color[3] > 0.9) return color; } return [255, 255, 255, 1]; };
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !seen(one) || one.closest("svg, :disabled, [disabled]")) continue;
    const [a, b] = [light(number(getComputedStyle(one).color)), light(behind(one))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) wrong.push(`contrast ${contrast.toFixed(1)}: ${one.outerHTML.slice(0, 120)}`);
  }
  if (!document.documentElement.lang) wrong.push("the page has no language");
  if (document.querySelectorAll("main").length !== 1) wrong.push("the page has no main part");
  return wrong.slice(0, 10);
}
