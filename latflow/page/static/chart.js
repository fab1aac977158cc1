// The curves of a run: -ELBO of training and validation over epochs.

const LINES = [["train_negative_elbo", "#3f7fbf", "train"], ["valid_negative_elbo", "#d9731a", "valid"]];

function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9; value += step) found.push(Number(value.toPrecision(6)));
  return found;
}

export function drawCurves(canvas, run, range) {
  const width = canvas.parentElement.clientWidth - 26, height = 200, left = 44, bottom = 24;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  const epochs = run.curve.epoch ?? [];
  if (!epochs.length || !range) {
    pen.fillStyle = "#5a6372";
    pen.fillText("no epoch has ended yet", left, height / 2);
    canvas.setAttribute("aria-label", "No epoch has ended yet");
    return;
  }
  const pad = 0.06 * (range[1] - range[0]) || 0.5;
  const [low, high] = [range[0] - pad, range[1] + pad];
  const last = Math.max(2, epochs.at(-1));
  const x = (epoch) => left + (width - left - 16) * (epoch - 1) / (last - 1);
  const y = (value) => 8 + (height - bottom - 8) * (high - value) / (high - low);
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const value of ticks(low, high, 4)) {
    pen.fillStyle = "#e3e7ed";
    pen.fillRect(left, y(value), width - left, 1);
    pen.fillStyle = "#5a6372";
    pen.fillText(String(value), left - 5, y(value));
  }
  pen.textAlign = "center";
  for (const epoch of ticks(1, last, 5)) {
    if (Number.isInteger(epoch)) pen.fillText(String(epoch), x(epoch), height - bottom + 12);
  }
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width - left, height - bottom + 2);
  pen.clip();
  const said = [];
  LINES.forEach(([name, colour, label], row) => {
    const column = run.curve[name] ?? [];
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1.8;
    pen.beginPath();
    let joined = false;
    column.forEach((value, i) => {
      if (value === null) { joined = false; return; }
      if (joined) pen.lineTo(x(epochs[i]), y(value));
      else pen.moveTo(x(epochs[i]), y(value));
      joined = true;
      if (column.length < 30) pen.rect(x(epochs[i]) - 1, y(value) - 1, 2, 2);
    });
    pen.stroke();
    const end = column.findLast((value) => value !== null);
    if (end !== undefined) said.push(`${label} ${end.toFixed(3)}`);
    pen.textAlign = "right";
    pen.fillText(`${label} ${end === undefined ? "" : end.toFixed(3)}`, width - 6, 14 + 14 * row);
  });
  pen.restore();
  canvas.setAttribute("aria-label", `-ELBO over ${epochs.length} epochs, in ${run.unit}; last: ${said.join(", ")}`);
}
