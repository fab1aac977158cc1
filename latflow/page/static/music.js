// The part of the page for music.
import * as address from "./address.js";
import { beside, readMidi, work } from "./api.js";
import { player } from "./audio.js";
import { EMPTY, FREE, LOCKED, Piece, Roll } from "./roll.js";
import { $, alertWords, during, numberOf } from "./status.js";

const WORDS = { harmonise: "Harmonising", continue: "Continuing", sample: "Sampling" };
const MELODY = "67l0-2.72l2-1.71l3-1.72l4-2.74l6-1.72l7-1.71l8-1.69l9-1.67l10-2.65l12-1.64l13-1.62l14-1.60l15-1";
let models = [];
let limit = 256;
let roll = null;
let asked = null; // {how, piece}: what the piece on show was drawn from
let past = []; // for undo
let timer = null;

const model = () => models.find((one) => one.name === $("music-model").value);

export function start(about) {
  models = about.models.filter((one) => one.kind === "music");
  limit = about.limits.steps;
  $("music-model").replaceChildren(...models.map((one) => new Option(one.name, one.name)));
  roll = new Roll(
    { box: $("roll"), notes: $("roll-notes"), keys: $("roll-keys"), surprise: $("roll-surprise"), here: $("roll-here") },
    { before: keep, changed: edited, tool: () => document.querySelector("input[name=tool]:checked").value },
  );
  $("music-model").addEventListener("change", edited);
  $("music-tempo").addEventListener("change", remember);
  $("music-steps").addEventListener("change", () => guarded(() => {
    keep();
    roll.show(roll.piece.resized(numberOf("music-steps", 32)));
    edited();
  }));
  $("music-form").addEventListener("submit", (event) => { event.preventDefault(); draw("harmonise"); });
  $("music-continue").addEventListener("click", () => draw("continue"));
  $("music-sample").addEventListener("click", () => draw("sample"));
  $("music-again").addEventListener("click", () => {
    $("music-seed").value = (Number($("music-seed").value) + 1) % 2 ** 32;
    if (asked) roll.show(asked.piece);
    draw(asked?.how ?? "harmonise");
  });
  $("music-lock").addEventListener("click", () => restate(LOCKED));
  $("music-unlock").addEventListener("click", () => restate(FREE));
  $("music-clear").addEventListener("click", () => { keep(); roll.show(new Piece(roll.piece.steps)); edited(); });
  $("music-undo").addEventListener("click", undo);
  $("music-play").addEventListener("click", play);
  $("music-file").addEventListener("change", load);
  for (const format of ["mid", "wav"]) $(`music-${format}`).addEventListener("click", () => download(format));
}

// What is on the roll, as it would stand in the address.
export const shownPiece = () => roll.piece.toString();

export function shown() {
  roll.centre();
}

export function restore(fields) {
  const name = fields.get("model");
  if (models.some((one) => one.name === name)) $("music-model").value = name;
  const own = fields.has("steps");
  const steps = Math.min(limit, Math.max(1, Number.parseInt(fields.get("steps") ?? "16", 10) || 16));
  for (const [id, fallback] of [["tempo", "100"], ["temperature", "1"], ["seed", "0"], ["particles", "100"], ["voice", "top"]]) {
    $(`music-${id}`).value = fields.get(id) ?? fallback;
  }
  $("music-argmax").checked = fields.get("argmax") === "1";
  $("music-steps").value = steps;
  roll.show(Piece.parse(own ? fields.get("roll") : MELODY, steps));
  roll.centre();
  asked = null;
  past = [];
  $("music-undo").disabled = true;
  $("music-sum").textContent = "";
  if ($("music").hidden) return;
  const how = fields.get("how");
  if (how in WORDS) draw(how);
  else surprise(0);
}

export function remember() {
  const fields = { tab: "music", model: $("music-model").value, steps: String(asked?.steps ?? roll.piece.steps),
    tempo: $("music-tempo").value, roll: (asked?.piece ?? roll.piece).toString() };
  if (asked) {
    Object.assign(fields, { how: asked.how, seed: $("music-seed").value, temperature: $("music-temperature").value,
      argmax: $("music-argmax").checked, particles: $("music-particles").value });
    if (asked.how === "harmonise") fields.voice = $("music-voice").value;
  }
  address.write(fields);
  if (!roll.nats.length) surprise(0);
}

function guarded(job) {
  try {
    return job();
  } catch (error) {
    alertWords(error.message);
    return undefined;
  }
}

function keep() {
  past.push(roll.piece.resized(roll.piece.steps));
  if (past.length > 50) past.shift();
  $("music-undo").disabled = false;
}

function undo() {
  const piece = past.pop();
  if (!piece) return;
  $("music-undo").disabled = !past.length;
  $("music-steps").value = piece.steps;
  roll.show(piece);
  edited();
}

// What is on show is the user's now, whatever it was drawn from.
function edited() {
  asked = null;
  $("music-sum").textContent = "";
  address.write({ tab: "music", model: $("music-model").value, steps: String(roll.piece.steps), tempo: $("music-tempo").value,
    roll: roll.piece.toString() });
  surprise(120);
}

function restate(state) {
  keep();
  roll.piece.cells.forEach((old, i, cells) => { if (old !== EMPTY) cells[i] = state; });
  roll.draw();
  edited();
}

async function surprise(wait) {
  clearTimeout(timer);
  await new Promise((go) => { timer = setTimeout(go, wait); });
  const { piece } = roll;
  if (!model()) return;
  if (!piece.last) {
    roll.nats = [];
    roll.drawStrip();
    return;
  }
  try {
    const found = await beside("music/surprise", { model: model().name, roll: piece.notes() });
    if (!found || piece !== roll.piece) return;
    roll.nats = found.nats;
    roll.drawStrip();
  } catch (error) {
    alertWords(error.message);
  }
}

async function draw(how) {
  player.stop();
  const piece = roll.piece.resized(roll.piece.steps);
  const fields = guarded(() => ({ model: model().name, how, length: numberOf("music-steps", 32), seed: numberOf("music-seed", 0),
    temperature: numberOf("music-temperature", 1), argmax: $("music-argmax").checked, particles: numberOf("music-particles", 100) }));
  if (!fields) return;
  if (how === "harmonise") {
    fields.roll = piece.notes((state) => state === LOCKED);
    fields.voice = $("music-voice").value;
  } else if (how === "continue") {
    fields.roll = piece.notes().slice(0, Math.max(1, piece.last));
    if (piece.last === piece.steps) fields.length = Math.min(limit, piece.steps + 16);
  }
  asked = { how, piece, steps: piece.steps };
  remember();
  const found = await during(WORDS[how], (tell) => work("music/draw", fields, tell));
  if (!found) return;
  keep();
  $("music-steps").value = found.roll.length;
  const state = (step, note) => (how !== "sample" && step < piece.steps ? piece.at(step, note) : EMPTY) || FREE;
  roll.show(Piece.of(found.roll, how === "harmonise" ? (step, note) => (piece.at(step, note) === LOCKED ? LOCKED : FREE) : state));
  roll.centre();
  document.body.dataset.drawn = how;
  $("music-sum").textContent = found.log_p === undefined ? "" :
    `log p of what was kept: ${found.log_p.toFixed(1)} nats; ${found.effective.toFixed(0)} effective particles`;
  // Few effective particles are no mistake here, where one piece is drawn: they are said, not warned of.
  const others = found.remarks.filter((words) => !words.includes("effectively different"));
  if (others.length) alertWords(others.join(" "));
  surprise(0);
}

function play() {
  if (player.playing) {
    player.stop();
    return;
  }
  const tempo = guarded(() => numberOf("music-tempo", 100));
  if (!tempo) return;
  if (!roll.piece.last) {
    alertWords("There are no notes to play; draw some, or ask for a sample.");
    return;
  }
  $("music-play").textContent = "Stop";
  player.play(roll.piece.strokes, roll.piece.last, 60 / tempo / model().steps_per_beat,
    (at) => { roll.head = at; roll.draw(); },
    () => { roll.head = null; roll.draw(); $("music-play").textContent = "Play"; });
}

async function load() {
  const [file] = $("music-file").files;
  $("music-file").value = "";
  if (!file) return;
  if (file.size > 2 ** 20) {
    alertWords(`${file.name} has ${file.size} bytes; at most ${2 ** 20} are read.`);
    return;
  }
  const found = await during(`Reading ${file.name}`, (tell) => file.arrayBuffer().then((bytes) => readMidi(model().name, bytes, tell)));
  if (!found) return;
  keep();
  $("music-steps").value = found.roll.length;
  roll.show(Piece.of(found.roll, LOCKED));
  roll.centre();
  if (found.remarks.length) alertWords(found.remarks.join(" "));
  edited();
}

async function download(format) {
  const fields = guarded(() => ({ model: model().name, format, tempo: numberOf("music-tempo", 100), roll: roll.piece.notes() }));
  if (!fields) return;
  const blob = await during(`Writing .${format}`, (tell) => work("music/file", fields, tell));
  if (!blob) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `latflow.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
