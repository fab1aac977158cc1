// The part of the page for runs: curves that grow, and samples of the weights as they are.
import * as address from "./address.js";
import { busy, get, work } from "./api.js";
import { player } from "./audio.js";
import { drawCurves } from "./chart.js";
import { miniature, FREE, Piece } from "./roll.js";
import { $, alertWords, during, numberOf } from "./status.js";

const EVERY = 3000;
const cards = new Map();
let timer = null;
let named = false;

export function start(about) {
  named = about.models.some((one) => !one.shipped);
  $("runs-none").hidden = named;
  $("runs-same").addEventListener("change", poll);
  document.addEventListener("visibilitychange", poll);
}

export function restore(fields) {
  if (fields.has("seed") && fields.get("tab") === "runs") $("runs-seed").value = fields.get("seed");
}

export function remember() {
  address.write({ tab: "runs", seed: $("runs-seed").value });
}

export function shown() {
  poll();
}

async function poll() {
  clearTimeout(timer);
  if (!named || $("runs").hidden || document.hidden) return;
  try {
    show((await get("/api/runs")).runs);
  } catch (error) {
    alertWords(error.message);
  }
  clearTimeout(timer);
  timer = setTimeout(poll, EVERY);
}

function show(runs) {
  const ranges = new Map();
  for (const run of runs) {
    const values = [run.curve.train_negative_elbo, run.curve.valid_negative_elbo].flatMap((column) => column ?? []).filter((v) => v !== null);
    if (!values.length) continue;
    const sorted = [...values].sort((a, b) => a - b);
    // Without the peaks of the first epochs, which would flatten all that comes after them.
    const middle = sorted[Math.floor(sorted.length / 2)];
    const range = [sorted[0], Math.min(sorted.at(-1), middle + 4 * Math.max(middle - sorted[0], 0.05 * Math.abs(middle)))];
    const key = $("runs-same").checked ? run.unit : run.name;
    const old = ranges.get(key) ?? range;
    ranges.set(key, [Math.min(old[0], range[0]), Math.max(old[1], range[1])]);
  }
  for (const run of runs) {
    const card = cards.get(run.name) ?? make(run);
    const epochs = run.curve.epoch ?? [];
    const valid = run.curve.valid_negative_elbo ?? [];
    const known = valid.filter((value) => value !== null);
    const live = run.age !== null && run.age < 60;
    card.state.textContent = [run.error, `${epochs.length} of ${run.epochs} epochs`,
      known.length ? `best ${Math.min(...known).toFixed(3)} ${run.unit}` : "no epoch has ended yet",
      live ? "training" : run.age === null ? "not begun" : `quiet for ${span(run.age)}`].filter(Boolean).join(" · ");
    drawCurves(card.canvas, run, ranges.get($("runs-same").checked ? run.unit : run.name));
    card.button.disabled = run.weights === null;
    const changed = card.weights !== undefined && card.weights !== run.weights;
    card.weights = run.weights;
    if (changed && $("runs-follow").checked && !busy()) sample(run, card, epochs.length);
    card.run = run;
  }
}

function span(seconds) {
  return seconds < 90 ? `${Math.round(seconds)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

function make(run) {
  const box = Object.assign(document.createElement("article"), { className: "card" });
  const title = Object.assign(document.createElement("h2"), { textContent: run.name });
  const preset = Object.assign(document.createElement("p"), { className: "quiet", textContent: run.preset ?? "" });
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  const state = Object.assign(document.createElement("p"), { className: "quiet" });
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Sample" });
  button.setAttribute("aria-label", `Sample of ${run.name}`);
  const list = Object.assign(document.createElement("ul"), { className: "samples" });
  list.setAttribute("aria-live", "polite");
  box.append(title, preset, canvas, state, button, list);
  $("runs-cards").append(box);
  const card = { box, canvas, state, button, list, run };
  button.addEventListener("click", () => sample(card.run, card, (card.run.curve.epoch ?? []).length));
  cards.set(run.name, card);
  return card;
}

async function sample(run, card, epoch) {
  let seed;
  try {
    seed = numberOf("runs-seed", 0);
  } catch (error) {
    alertWords(error.message);
    return;
  }
  remember();
  const found = await during(`Sampling ${run.name}`, (tell) => work("runs/sample", { run: run.name, seed }, tell));
  if (!found) return;
  const item = document.createElement("li");
  const when = Object.assign(document.createElement("span"), { className: "quiet", textContent: `after ${epoch} epochs, seed ${seed}` });
  item.append(when);
  if (found.kind === "music") {
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `A piece of ${found.sample.length} steps`);
    miniature(canvas, found.sample);
    canvas.style.width = "100%";
    const play = Object.assign(document.createElement("button"), { type: "button", textContent: "Play" });
    play.addEventListener("click", () => {
      if (player.playing) { player.stop(); return; }
      play.textContent = "Stop";
      player.play(Piece.of(found.sample, FREE).strokes, found.sample.length, 0.6, () => {}, () => { play.textContent = "Play"; });
    });
    item.append(canvas, play);
  } else {
    const words = found.kind === "text" ? found.sample : JSON.stringify(found.sample);
    item.append(Object.assign(document.createElement("span"), { textContent: words }));
  }
  card.list.prepend(item);
  while (card.list.children.length > 20) card.list.lastChild.remove();
}
