// The density p(z_t | z_<t) on a canvas, with the places of symbols on it.
import { shown } from "./symbols.js";

export function drawDensity(canvas, density) {
  const { points, low, high, level } = density;
  const picture = new ImageData(points, points);
  for (let row = 0; row < points; row++) {
    for (let column = 0; column < points; column++) {
      const share = level[row * points + column] / 255;
      const at = 4 * ((points - 1 - row) * points + column); // the second dimension upwards
      picture.data.set([255 - 232 * share, 255 - 160 * share, 255 - 90 * share, 255], at);
    }
  }
  const small = new OffscreenCanvas(points, points);
  small.getContext("2d").putImageData(picture, 0, 0);
  const size = canvas.width;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = true;
  pen.clearRect(0, 0, size, size);
  pen.drawImage(small, 0, 0, size, size);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  // The likeliest last, so that they lie on top.
  for (let i = density.symbols.length - 1; i >= 0; i--) {
    const [x, y] = [0, 1].map((d) => (density.places[i][d] - low[d]) / (high[d] - low[d]));
    const here = i === density.here;
    pen.font = `${here ? "bold 26px" : i < 8 ? "22px" : "17px"} ui-monospace, monospace`;
    const symbol = shown(density.symbols[i]);
    pen.lineWidth = 5;
    pen.strokeStyle = "rgba(255,255,255,.85)";
    pen.strokeText(symbol, x * size, (1 - y) * size);
    pen.fillStyle = here ? "#b3470b" : "#1d2330";
    pen.fillText(symbol, x * size, (1 - y) * size);
    if (here) {
      pen.strokeStyle = "#d9731a";
      pen.lineWidth = 2.5;
      pen.beginPath();
      pen.arc(x * size, (1 - y) * size, 20, 0, 7);
      pen.stroke();
    }
  }
}
