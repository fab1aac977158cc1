// A piano roll on a canvas: to see, to draw in by pointer or keyboard, to lock.

export const LOWEST = 21, NOTES = 88;
export const EMPTY = 0, FREE = 1, LOCKED = 2;
const NARROW = 20, WIDE = 34, HEIGHT = 11, KEYS = 46, TOP = 58, BAR = 22;
const NAMES = ["C", "C sharp", "D", "D sharp", "E", "F", "F sharp", "G", "G sharp", "A", "A sharp", "B"];
const COLOURS = { [FREE]: "#3f7fbf", [LOCKED]: "#d9731a" };
const black = (note) => [1, 3, 6, 8, 10].includes(note % 12);

export const nameOf = (note) => `${NAMES[note % 12]} ${Math.floor(note / 12) - 1}`;

// steps x 88 states, as one array.
export class Piece {
  constructor(steps) {
    this.steps = steps;
    this.cells = new Uint8Array(steps * NOTES);
  }

  at(step, note) { return this.cells[step * NOTES + note - LOWEST]; }

  set(step, note, state) { this.cells[step * NOTES + note - LOWEST] = state; }

  resized(steps) {
    const other = new Piece(steps);
    other.cells.set(this.cells.subarray(0, Math.min(this.cells.length, other.cells.length)));
    return other;
  }

  // MIDI notes of each step, those whose state is wanted.
  notes(wanted = (state) => state !== EMPTY) {
    return Array.from({ length: this.steps }, (_, step) =>
      Array.from({ length: NOTES }, (_, key) => key + LOWEST).filter((note) => wanted(this.at(step, note))));
  }

  static of(rows, state) {
    const piece = new Piece(rows.length);
    rows.forEach((notes, step) => notes.forEach((note) => piece.set(step, note, typeof state === "function" ? state(step, note) : state)));
    return piece;
  }

  get last() { return Math.ceil((this.cells.findLastIndex((state) => state) + 1) / NOTES); }

  // [note, start, end] of what sounds on, whatever its state.
  get strokes() {
    const found = [];
    for (let note = LOWEST; note < LOWEST + NOTES; note++) {
      for (let step = 0, start = -1; step <= this.steps; step++) {
        const on = step < this.steps && this.at(step, note) !== EMPTY;
        if (on && start < 0) start = step;
        if (!on && start >= 0) { found.push([note, start, step]); start = -1; }
      }
    }
    return found;
  }

  // For the address: note, state, start and length of each stretch.
  toString() {
    const found = [];
    for (let note = LOWEST; note < LOWEST + NOTES; note++) {
      for (let step = 0; step < this.steps;) {
        const state = this.at(step, note);
        let end = step + 1;
        while (end < this.steps && this.at(end, note) === state) end++;
        if (state) found.push(`${note}${state === LOCKED ? "l" : "f"}${step}-${end - step}`);
        step = end;
      }
    }
    return found.join(".");
  }

  static parse(words, steps) {
    const piece = new Piece(steps);
    for (const word of (words ?? "").split(".")) {
      const found = /^(\d{2,3})([lf])(\d{1,3})-(\d{1,3})$/.exec(word);
      if (!found) continue;
      const [note, start, length] = [1, 3, 4].map((i) => Number(found[i]));
      if (note < LOWEST || note >= LOWEST + NOTES) continue;
      for (let step = start; step < Math.min(steps, start + length); step++) piece.set(step, note, found[2] === "l" ? LOCKED : FREE);
    }
    return piece;
  }
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

export class Roll {
  // `changed` is called after a stroke of the user's, `before` ahead of it; `tool` says draw or lock.
  constructor({ box, notes, keys, surprise, here }, { before, changed, tool }) {
    Object.assign(this, { box, canvas: notes, keys, strip: surprise, here, before, changed, tool });
    this.piece = new Piece(32);
    this.nats = [];
    this.cursor = { step: 0, note: 67 };
    this.head = null;
    this.width = NARROW;
    addEventListener("resize", () => this.layout());
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.drag(event));
    this.canvas.addEventListener("pointerup", (event) => this.release(event));
    this.canvas.addEventListener("pointercancel", () => { this.touch = this.stroke = null; });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    for (const name of ["focus", "blur"]) this.canvas.addEventListener(name, () => this.draw());
  }

  show(piece, nats = []) {
    this.piece = piece;
    this.nats = nats;
    this.cursor.step = Math.min(this.cursor.step, piece.steps - 1);
    this.layout();
  }

  // Steps as wide as there is room for, within reason; the rest is for scrolling.
  layout() {
    const room = this.box.parentElement.clientWidth - KEYS - BAR;
    this.width = Math.min(WIDE, Math.max(NARROW, Math.floor(room / this.piece.steps)));
    this.draw();
    this.drawStrip();
  }

  // Scrolls to where notes are, or to the middle.
  centre() {
    this.layout();
    const sounding = this.piece.strokes.map(([note]) => note);
    const middle = sounding.length ? (Math.min(...sounding) + Math.max(...sounding)) / 2 : 66;
    this.box.scrollTop = (LOWEST + NOTES - 1 - middle) * HEIGHT - (this.box.clientHeight - TOP) / 2;
  }

  y(note) { return (LOWEST + NOTES - 1 - note) * HEIGHT; }

  draw() {
    const width = this.piece.steps * this.width, height = NOTES * HEIGHT;
    const pen = sized(this.canvas, width, height);
    for (let note = LOWEST; note < LOWEST + NOTES; note++) {
      pen.fillStyle = black(note) ? "#eef1f5" : "#fff";
      pen.fillRect(0, this.y(note), width, HEIGHT);
      pen.fillStyle = note % 12 === 0 ? "#aab4c2" : "#dfe4ea";
      pen.fillRect(0, this.y(note) + HEIGHT - 0.5, width, 0.5);
    }
    for (let step = 0; step <= this.piece.steps; step++) {
      pen.fillStyle = step % 4 ? "#e6eaef" : "#b9c2ce";
      pen.fillRect(step * this.width - 0.5, 0, step % 4 ? 0.5 : 1, height);
    }
    for (let step = 0; step < this.piece.steps; step++) {
      for (let note = LOWEST; note < LOWEST + NOTES; note++) {
        const state = this.piece.at(step, note);
        if (!state) continue;
        const starts = step === 0 || !this.piece.at(step - 1, note);
        pen.fillStyle = COLOURS[state];
        pen.fillRect(step * this.width + (starts ? 1.5 : 0), this.y(note) + 0.5, this.width - (starts ? 1.5 : 0), HEIGHT - 1.5);
      }
    }
    if (this.head !== null) {
      pen.fillStyle = "rgba(31,78,121,.55)";
      pen.fillRect(this.head * this.width - 1, 0, 2, height);
    }
    if (document.activeElement === this.canvas && this.canvas.matches(":focus-visible")) {
      pen.strokeStyle = "#1d2330";
      pen.lineWidth = 2;
      pen.strokeRect(this.cursor.step * this.width + 1, this.y(this.cursor.note) + 0.5, this.width - 2, HEIGHT - 1);
    }
    this.drawKeys();
  }

  drawKeys() {
    const pen = sized(this.keys, KEYS - 1, NOTES * HEIGHT);
    pen.font = "10px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (let note = LOWEST; note < LOWEST + NOTES; note++) {
      pen.fillStyle = black(note) ? "#39414f" : "#fff";
      pen.fillRect(20, this.y(note), KEYS - 20, HEIGHT);
      pen.strokeStyle = "#cfd5de";
      pen.lineWidth = 0.5;
      pen.strokeRect(20, this.y(note), KEYS - 20, HEIGHT);
      if (note % 12 === 0) {
        pen.fillStyle = "#5a6372";
        pen.fillText(`C${note / 12 - 1}`, 2, this.y(note) + HEIGHT / 2);
      }
    }
  }

  drawStrip() {
    const width = this.piece.steps * this.width;
    const pen = sized(this.strip, width, TOP - 1);
    const most = Math.max(10, ...this.nats);
    pen.font = "9px system-ui, sans-serif";
    pen.textAlign = "center";
    this.nats.forEach((value, step) => {
      const tall = Math.max(1, (TOP - 16) * Math.max(0, value) / most);
      pen.fillStyle = value > 15 ? "#c2410c" : value > 7 ? "#ee8a3c" : "#8fb3d6";
      pen.fillRect(step * this.width + 2, TOP - 2 - tall, this.width - 4, tall);
      pen.fillStyle = "#5a6372";
      pen.fillText(value.toFixed(value < 10 ? 1 : 0), (step + 0.5) * this.width, TOP - 5 - tall);
    });
    const sum = this.nats.reduce((total, value) => total + value, 0);
    const worst = this.nats.indexOf(Math.max(...this.nats));
    this.strip.setAttribute("aria-label", this.nats.length ?
      `Surprise of each step: ${(sum / this.nats.length).toFixed(1)} nats on average, most at step ${worst + 1}` : "Surprise of each step");
    this.strip.dataset.steps = this.nats.length;
  }

  cell(event) {
    const box = this.canvas.getBoundingClientRect();
    const step = Math.floor((event.clientX - box.left) / this.width);
    const note = LOWEST + NOTES - 1 - Math.floor((event.clientY - box.top) / HEIGHT);
    if (step < 0 || step >= this.piece.steps || note < LOWEST || note >= LOWEST + NOTES) return null;
    return { step, note };
  }

  press(event) {
    const at = this.cell(event);
    if (!at || event.button > 0) return;
    if (event.pointerType === "touch") { this.touch = at; return; } // a finger that moves scrolls
    this.canvas.setPointerCapture(event.pointerId);
    this.begin(at);
  }

  begin(at) {
    this.before();
    const state = this.piece.at(at.step, at.note);
    this.stroke = this.tool() === "lock" ? { from: state, to: state === LOCKED ? FREE : LOCKED } :
      { from: null, to: state ? EMPTY : LOCKED };
    this.apply(at);
  }

  apply(at) {
    this.cursor = at;
    const state = this.piece.at(at.step, at.note);
    const fits = this.stroke.from === null ? true : state !== EMPTY;
    if (fits && state !== this.stroke.to) this.piece.set(at.step, at.note, this.stroke.to);
    this.draw();
  }

  drag(event) {
    if (!this.stroke) return;
    const at = this.cell(event);
    if (at && (at.step !== this.cursor.step || at.note !== this.cursor.note)) this.apply(at);
  }

  release(event) {
    if (this.touch) {
      const at = this.cell(event);
      if (at && at.step === this.touch.step && at.note === this.touch.note) this.begin(at);
      this.touch = null;
    }
    if (!this.stroke) return;
    this.stroke = null;
    this.tell();
    this.changed();
  }

  key(event) {
    const { step, note } = this.cursor;
    const to = { ArrowRight: [step + 1, note], ArrowLeft: [step - 1, note], ArrowUp: [step, note + 1], ArrowDown: [step, note - 1],
      PageUp: [step, note + 12], PageDown: [step, note - 12], Home: [0, note], End: [this.piece.steps - 1, note] }[event.key];
    if (to) {
      this.cursor = { step: Math.min(this.piece.steps - 1, Math.max(0, to[0])), note: Math.min(LOWEST + NOTES - 1, Math.max(LOWEST, to[1])) };
    } else if (event.key === " " || event.key === "Enter" || event.key.toLowerCase() === "l") {
      const state = this.piece.at(step, note);
      const lock = event.key.toLowerCase() === "l";
      if (!lock || state) {
        this.before();
        this.piece.set(step, note, lock ? (state === LOCKED ? FREE : LOCKED) : state ? EMPTY : LOCKED);
        this.changed();
      }
    } else return;
    event.preventDefault();
    this.draw();
    this.intoView();
    this.tell();
  }

  intoView() {
    const x = this.cursor.step * this.width, y = this.y(this.cursor.note);
    const { box } = this, wide = box.clientWidth - KEYS, tall = box.clientHeight - TOP;
    if (x < box.scrollLeft) box.scrollLeft = x;
    if (x + this.width > box.scrollLeft + wide) box.scrollLeft = x + this.width - wide;
    if (y < box.scrollTop) box.scrollTop = y;
    if (y + HEIGHT > box.scrollTop + tall) box.scrollTop = y + HEIGHT - tall;
  }

  tell() {
    const { step, note } = this.cursor;
    const state = ["silent", "sounds, free", "sounds, locked"][this.piece.at(step, note)];
    const nats = this.nats[step] === undefined ? "" : `; the step's surprise ${this.nats[step].toFixed(1)} nats`;
    this.here.textContent = `Step ${step + 1}, ${nameOf(note)}: ${state}${nats}`;
  }
}

// A small picture of notes, for samples.
export function miniature(canvas, rows) {
  const piece = Piece.of(rows, FREE);
  const notes = piece.strokes.map(([note]) => note);
  const low = Math.min(...notes, 60) - 2, high = Math.max(...notes, 61) + 2;
  const pen = sized(canvas, 360, 90);
  pen.fillStyle = "#f4f6f9";
  pen.fillRect(0, 0, 360, 90);
  pen.fillStyle = COLOURS[FREE];
  for (const [note, start, end] of piece.strokes) {
    pen.fillRect(360 * start / piece.steps, 90 * (high - note) / (high - low + 1), 360 * (end - start) / piece.steps - 1, 90 / (high - low + 1));
  }
}
