// The part of the page for text.
import * as address from "./address.js";
import { beside, work } from "./api.js";
import { drawDensity } from "./density.js";
import { $, alertWords, during, numberOf } from "./status.js";
import { colour, shown as visible, spoken } from "./symbols.js";

const WAIT = 15; // milliseconds after a keystroke
const EXAMPLE = "The value of the expression is ";
let models = [];
let chosen = null; // the place whose distribution is shown
let asked = null; // what was drawn: continue or fill
let bits = [];
let timer = null;

const model = () => models.find((one) => one.name === $("text-model").value);
const symbols = () => Array.from($("text-input").value);
const ended = () => $("text-ended").checked || !model().stepwise;

export function start(about) {
  models = about.models.filter((one) => one.kind === "text");
  $("text-model").replaceChildren(...models.map((one) => new Option(one.name, one.name)));
  $("text-model").addEventListener("change", () => { forget(); describe(); colours(0); });
  $("text-ended").addEventListener("change", () => { forget(); colours(0); });
  $("text-input").addEventListener("input", () => { forget(); paint(true); colours(WAIT); });
  $("text-form").addEventListener("submit", (event) => { event.preventDefault(); draw("continue"); });
  $("text-fill").addEventListener("click", () => draw("fill"));
  $("text-again").addEventListener("click", () => {
    $("text-seed").value = (Number($("text-seed").value) + 1) % 2 ** 32;
    draw(asked ?? "continue");
  });
  $("text-symbols").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) look(Number(button.dataset.at));
  });
  $("text-symbols").addEventListener("keydown", walk);
}

export function shown() {
  if (!bits.length) colours(0);
}

export function restore(fields) {
  const name = fields.get("model");
  if (models.some((one) => one.name === name)) $("text-model").value = name;
  else if (models.some((one) => one.name === "pydoc")) $("text-model").value = "pydoc";
  $("text-input").value = fields.get("text") ?? (fields.has("model") ? "" : EXAMPLE);
  $("text-ended").checked = fields.get("ended") === "1";
  for (const [id, fallback] of [["mark", "?"], ["temperature", "1"], ["seed", "0"], ["n", "3"], ["length", ""], ["particles", "200"]]) {
    $(`text-${id}`).value = fields.get(id) ?? fallback;
  }
  $("text-argmax").checked = fields.get("argmax") === "1";
  $("text-results").replaceChildren();
  describe();
  chosen = fields.has("at") ? Number(fields.get("at")) : null;
  asked = null;
  bits = [];
  paint(true);
  if ($("text").hidden) return;
  const how = fields.get("how");
  colours(0).then(() => (chosen === null ? null : look(chosen))).then(() => {
    if (how === "continue" || how === "fill") draw(how);
  });
}

export function remember() {
  const fields = { tab: "text", model: $("text-model").value, text: $("text-input").value, ended: $("text-ended").checked };
  if (asked) {
    Object.assign(fields, { how: asked, seed: $("text-seed").value, temperature: $("text-temperature").value,
      n: $("text-n").value, argmax: $("text-argmax").checked, particles: $("text-particles").value });
    if (asked === "fill") fields.mark = $("text-mark").value;
    else fields.length = $("text-length").value;
  }
  if (chosen !== null) fields.at = String(chosen);
  address.write(fields);
}

// What was drawn and looked at belongs to another text or model.
function forget() {
  asked = chosen = null;
  $("next").hidden = true;
  $("next-hint").hidden = false;
}

function describe() {
  const one = model();
  const limit = one.longest ? ` Up to ${one.longest} characters.` : "";
  $("text-about").textContent = one.about + limit + (one.stepwise ? "" : " It looks at whole texts: its colours take this one as ended.");
  $("text-ended").parentElement.hidden = !one.stepwise;
  buttons();
}

function buttons() {
  const nothing = $("text-input").value === "";
  $("text-continue").textContent = nothing ? "Sample" : "Continue";
}

async function colours(wait) {
  clearTimeout(timer);
  await new Promise((go) => { timer = setTimeout(go, wait); });
  if ($("text").hidden) return;
  remember();
  buttons();
  const text = $("text-input").value;
  if (!text) {
    bits = [];
    paint();
    return;
  }
  const began = performance.now();
  try {
    const found = await beside("text/surprise", { model: model().name, text, ended: ended() });
    if (!found || text !== $("text-input").value) return;
    bits = found.bits;
    alertWords("");
    paint();
    $("text-symbols").dataset.milliseconds = (performance.now() - began).toFixed(0);
  } catch (error) {
    bits = [];
    paint();
    alertWords(error.message);
  }
}

// The symbols as buttons. While others are awaited, those typed anew have no colour yet.
function paint(stale = false) {
  const place = $("text-symbols");
  const found = symbols();
  const behind = model().stepwise && !ended() && found.length ? 1 : 0;
  while (place.children.length > found.length + behind) place.lastChild.remove();
  while (place.children.length < found.length + behind) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.at = place.children.length;
    place.append(button);
  }
  place.classList.toggle("stale", stale);
  place.dataset.done = String(!stale);
  Array.from(place.children).forEach((button, at) => {
    const last = at === found.length;
    const symbol = last ? "·" : found[at] === "\n" ? "⏎" : found[at];
    const known = !last && at < bits.length && !stale;
    if (button.textContent !== symbol) button.textContent = symbol;
    if (known) button.dataset.bits = bits[at];
    else delete button.dataset.bits;
    if (known || !stale) button.style.backgroundColor = known ? colour(bits[at]) : "";
    const words = last ? "what comes next" : known ? `${spoken(found[at])}, ${bits[at].toFixed(2)} bits` : spoken(found[at]);
    button.setAttribute("aria-label", words);
    button.title = words;
    button.tabIndex = at === (chosen ?? 0) ? 0 : -1;
    button.setAttribute("aria-pressed", String(at === chosen));
  });
  if (stale) return;
  const sum = bits.reduce((total, value) => total + value, 0);
  $("text-sum").textContent = bits.length ? `${sum.toFixed(1)} bits, ${(sum / bits.length).toFixed(2)} per character` +
    (model().stepwise ? "" : "; terms of the bound, which may be below 0") : "";
}

function walk(event) {
  const all = Array.from($("text-symbols").children);
  const at = all.indexOf(document.activeElement);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (at < 0 || to === undefined || !all[to]) return;
  event.preventDefault();
  all[at].tabIndex = -1;
  all[to].tabIndex = 0;
  all[to].focus();
}

async function look(at) {
  chosen = at;
  const text = $("text-input").value;
  const found = await during("Looking", (tell) => work("text/next", { model: model().name, text, at, ended: ended() }, tell));
  if (!found || text !== $("text-input").value) return;
  paint();
  remember();
  const here = symbols()[at];
  $("next-hint").hidden = true;
  $("next").hidden = false;
  const before = symbols().slice(Math.max(0, at - 18), at).map(visible).join("");
  $("next-where").replaceChildren("after ", Object.assign(document.createElement("code"), { textContent: before || "nothing" }),
    ` (${found.entropy.toFixed(1)} bits of entropy)`);
  const rows = found.symbols.map((symbol, i) => [symbol, found.p[i]]);
  const top = rows.slice(0, found.density ? 8 : 12);
  const own = rows.find(([symbol]) => symbol === here);
  if (own && !top.includes(own)) top.push(own);
  $("next-bars").replaceChildren(...top.map(([symbol, p]) => bar(symbol, p, top[0][1], symbol === here)));
  $("density").hidden = !found.density;
  if (found.density) {
    drawDensity($("density-canvas"), found.density);
    const likely = found.density.symbols.slice(0, 4).map(spoken).join(", ");
    $("density-canvas").setAttribute("aria-label", `The density of z at this step; the likeliest symbols there are ${likely}`);
    $("density-words").textContent = "The density p(z_t | z_<t), and where z_t would lie for each symbol; in orange the one that stands there.";
  }
}

function bar(symbol, p, most, here) {
  const item = document.createElement("li");
  item.classList.toggle("here", here);
  const parts = ["symbol", "bar", "p"].map((name) => Object.assign(document.createElement("span"), { className: name }));
  parts[0].textContent = visible(symbol);
  parts[1].style.width = `${100 * p / most}%`;
  parts[2].textContent = p >= 0.0005 ? `${(100 * p).toFixed(1)} %` : "< 0.1 %";
  item.setAttribute("aria-label", `${spoken(symbol)}, ${parts[2].textContent}${here ? ", stands there" : ""}`);
  item.append(...parts);
  return item;
}

async function draw(how) {
  let fields;
  try {
    fields = { model: model().name, how, text: $("text-input").value, n: numberOf("text-n", 3), seed: numberOf("text-seed", 0),
      temperature: numberOf("text-temperature", 1), argmax: $("text-argmax").checked, particles: numberOf("text-particles", 200) };
    if (how === "fill") fields.mark = $("text-mark").value;
    else {
      const length = numberOf("text-length", null);
      if (length !== null) fields.length = length;
    }
  } catch (error) {
    alertWords(error.message);
    return;
  }
  asked = how;
  remember();
  $("text-results").replaceChildren();
  const words = how === "fill" ? "Filling in" : fields.text ? "Continuing" : "Sampling";
  const found = await during(words, (tell) => work("text/draw", fields, tell));
  if (!found) return;
  const known = new Set(found.known);
  $("text-results").replaceChildren(...found.texts.map((text) => {
    const item = document.createElement("li");
    const drawn = Object.assign(document.createElement("span"), { className: "drawn" });
    Array.from(text).forEach((symbol, at) => {
      const wanted = known.has(at) ? "B" : "SPAN";
      if (drawn.lastChild?.tagName !== wanted) drawn.append(document.createElement(wanted));
      drawn.lastChild.textContent += symbol;
    });
    const use = Object.assign(document.createElement("button"), { type: "button", textContent: "Use" });
    use.setAttribute("aria-label", `Use: ${text}`);
    use.addEventListener("click", () => {
      $("text-input").value = text;
      forget();
      colours(0);
      $("text-input").focus();
    });
    item.append(drawn, use);
    return item;
  }));
  if (found.remarks.length) alertWords(found.remarks.join(" "));
}
